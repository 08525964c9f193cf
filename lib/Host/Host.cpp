//===- Host.cpp - Machine level to native code ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Host/Host.h"
#include "Native.h"
#include "Rewriter.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

using namespace mlir;

namespace attn::host {

/// Whether blocks of a kernel wait for others of the launch: nothing else loads at the scope of the device.
static bool waitsForBlocks(LLVM::LLVMFuncOp function) {
  auto found = function.walk([](LLVM::LoadOp load) {
    return load.getSyncscope() == std::optional<StringRef>("device") ? WalkResult::interrupt()
                                                                     : WalkResult::advance();
  });
  return found.wasInterrupted();
}

static bool isKernel(LLVM::LLVMFuncOp function) {
  return function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()) ||
         function->hasAttr(gpu::GPUDialect::getKernelFuncAttrName());
}

llvm::Expected<rt::host::CodeObject> compileForHost(Operation *gpuModule, const HostCodeOptions &options) {
  MLIRContext *context = gpuModule->getContext();
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);

  OwningOpRef<ModuleOp> module = ModuleOp::create(gpuModule->getLoc());
  OpBuilder b(module->getBodyRegion());
  Operation *copy = b.clone(*gpuModule);
  llvm::Expected<ModuleLayout> layout = layOut(copy);
  if (!layout)
    return layout.takeError();

  // Moves them out of the gpu.module, where symbols of the runtime can be declared beside them.
  SmallVector<Operation *> members;
  for (Operation &op : copy->getRegion(0).front())
    if (!op.hasTrait<OpTrait::IsTerminator>())
      members.push_back(&op);
  SmallVector<std::pair<LLVM::LLVMFuncOp, bool>> functions;
  for (Operation *op : members) {
    auto global = dyn_cast<LLVM::GlobalOp>(op);
    if (global && global.getAddrSpace() == 3)
      continue;
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (!global && !function)
      return errorAt(op, "the host device expects llvm.func and llvm.mlir.global in a gpu.module, not '" +
                             op->getName().getStringRef() + "'");
    if (function && function.isExternal())
      continue;
    op->moveBefore(copy);
    if (function)
      functions.push_back({function, isKernel(function)});
  }
  rt::host::CodeObject code;
  code.cpu = options.cpu.empty() ? std::string(rt::host::thisCpu()) : options.cpu;
  code.checked = options.check;
  for (auto [function, kernel] : functions) {
    if (!kernel)
      continue;
    rt::host::HostKernel &k = code.kernels.emplace_back();
    k.name = function.getName().str();
    mlir::DataLayout sizes(*module);
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
      auto byValue = function.getArgAttrOfType<TypeAttr>(i, LLVM::LLVMDialect::getByValAttrName());
      k.parameterBytes.push_back(sizes.getTypeSize(byValue ? byValue.getValue() : type));
    }
    k.sharedAlignment = layout->sharedAlignment;
    k.staticShared = layout->staticShared;
    k.checked = options.check;
    if (auto blocks = function->getAttrOfType<IntegerAttr>(NVVM::NVVMDialect::getMinctasmAttrName()))
      k.blocksPerMultiprocessor = static_cast<uint32_t>(blocks.getInt());
    k.inOrder = waitsForBlocks(function);
    auto written = writtenParameters(function);
    k.writesAnywhere = !written;
    if (written)
      k.writtenParameters = std::move(*written);
  }
  Rewriter rewriter(*module, *layout, options.check);
  for (auto [function, kernel] : functions)
    if (llvm::Error error = rewriter.rewrite(function, kernel))
      return std::move(error);
  copy->erase();

  auto llvmContext = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> native =
      translateModuleToLLVMIR(*module, *llvmContext, "attn-host", /*disableVerification=*/true);
  if (!native)
    return llvm::createStringError("the host device could not translate the kernel to LLVM IR");
  llvm::Expected<std::vector<uint8_t>> elf = compileToObject(*native, code.cpu);
  if (!elf)
    return elf.takeError();
  code.elf = std::move(*elf);
  const rt::host::SharedList<rt::host::HostOpInfo> ops(std::move(layout->ops));
  const rt::host::SharedList<rt::host::WarpProgram> programs(std::move(rewriter.programs));
  const rt::host::SharedList<rt::host::WgmmaProgram> wgmmaPrograms(std::move(rewriter.wgmmaPrograms));
  for (rt::host::HostKernel &kernel : code.kernels) {
    kernel.ops = ops;
    kernel.programs = programs;
    kernel.wgmmaPrograms = wgmmaPrograms;
  }
  return code;
}

llvm::Expected<std::unique_ptr<rt::host::LoadedCode>> loadForHost(Operation *gpuModule,
                                                                  const HostCodeOptions &options) {
  llvm::Expected<rt::host::CodeObject> object = compileForHost(gpuModule, options);
  if (!object)
    return object.takeError();
  auto code = rt::host::LoadedCode::load(*object, "compiled kernel");
  if (!code)
    return llvm::createStringError(code.error().message);
  return std::move(*code);
}

} // namespace attn::host

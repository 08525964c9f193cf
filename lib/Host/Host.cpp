//===- Host.cpp - Machine level to native code ----------------------------===//
#include "attn/Host/Host.h"
#include "Jit.h"
#include "Rewriter.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

using namespace mlir;

namespace attn::host {

HostCode::~HostCode() = default;

const rt::host::HostKernel *HostCode::find(std::string_view name) const {
  for (const rt::host::HostKernel &kernel : kernels())
    if (kernel.name == name)
      return &kernel;
  return nullptr;
}

namespace {

class JittedCode : public HostCode {
public:
  std::span<const rt::host::HostKernel> kernels() const override { return list; }
  std::unique_ptr<Jit> jit;
  std::vector<rt::host::HostKernel> list;
};

} // namespace

static bool isKernel(LLVM::LLVMFuncOp function) {
  return function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()) ||
         function->hasAttr(gpu::GPUDialect::getKernelFuncAttrName());
}

llvm::Expected<std::unique_ptr<HostCode>> compileForHost(Operation *gpuModule,
                                                         const HostCodeOptions &options) {
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

  // Out of the gpu.module, where symbols of the runtime can be declared beside them.
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
  auto code = std::make_unique<JittedCode>();
  for (auto [function, kernel] : functions) {
    if (!kernel)
      continue;
    rt::host::HostKernel &k = code->list.emplace_back();
    k.name = function.getName().str();
    mlir::DataLayout sizes(*module);
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
      auto byValue = function.getArgAttrOfType<TypeAttr>(i, LLVM::LLVMDialect::getByValAttrName());
      k.parameterBytes.push_back(sizes.getTypeSize(byValue ? byValue.getValue() : type));
    }
    k.sharedAlignment = layout->sharedAlignment;
    k.staticShared = layout->staticShared;
    k.checked = options.check;
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
  llvm::Expected<std::unique_ptr<Jit>> jit = Jit::compile(std::move(native), std::move(llvmContext));
  if (!jit)
    return jit.takeError();
  code->jit = std::move(*jit);
  for (rt::host::HostKernel &kernel : code->list) {
    llvm::Expected<void *> entry = code->jit->lookup(kernel.name);
    if (!entry)
      return entry.takeError();
    kernel.entry = reinterpret_cast<void (*)(rt::host::LaneAbi *, void **)>(*entry);
    kernel.ops = layout->ops;
    kernel.programs = rewriter.programs;
    kernel.wgmmaPrograms = rewriter.wgmmaPrograms;
  }
  return code;
}

} // namespace attn::host

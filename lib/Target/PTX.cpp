//===- PTX.cpp - From the machine level to PTX ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels arrive unrolled and in SSA form, so LLVM has little left to do: fold address arithmetic and
// share it. Hoisting out of loops is left to ptxas, which knows the number of registers. With LLVM's
// loop-invariant code motion and GVN before it, the same kernels used 14 registers more (d128 prefill), and
// warp-specialised ones spilled (measured 2026-11-20, ptxas 13.0). Kernels of few rows have spare registers
// from Hopper on, unless four blocks share a multiprocessor's, and ptxas still leaves addresses in their
// loops: there LLVM hoists.
//
//===----------------------------------------------------------------------===//
#include "attn/Target/PTX.h"

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#include <mutex>

using namespace mlir;
using namespace mlir::attn;

static llvm::TargetMachine *makeTargetMachine(const Chip &chip, bool contracts, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // a*b + c as one fma, as CUDA compilers do; else `.rn` in PTX keeps ptxas from it, too
  options.AllowFPOpFusion = contracts ? llvm::FPOpFusion::Fast : llvm::FPOpFusion::Strict;
  return target->createTargetMachine(triple, chip.name, "+ptx" + std::to_string(chip.ptxVersion), options,
                                     std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Default);
}

namespace {
/// Skips passes of the NVPTX backend that find nothing to do in kernels: vectors are already vectors, and
/// constants cost nothing.
class PassGate : public llvm::OptPassGate {
public:
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef name, llvm::StringRef) const override {
    return !llvm::is_contained({"load-store-vectorizer", "consthoist"}, name);
  }
};
} // namespace

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, bool hoists) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);

  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  if (hoists)
    passes.addPass(
        llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  llvm::ModulePassManager manager;
  manager.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
  manager.run(module, modules);
}

/// Returns a module with this kernel alone, and the parts that kernels share.
static OwningOpRef<gpu::GPUModuleOp> moduleOf(LLVM::LLVMFuncOp kernel) {
  auto all = kernel->getParentOfType<gpu::GPUModuleOp>();
  OpBuilder builder(kernel->getContext());
  OwningOpRef<gpu::GPUModuleOp> module = cast<gpu::GPUModuleOp>(builder.cloneWithoutRegions(*all));
  builder.createBlock(&module->getBodyRegion());
  for (Operation &op : *all.getBody())
    if (&op == kernel || !isa<LLVM::LLVMFuncOp>(op))
      builder.clone(op);
  return module;
}

FailureOr<KernelIR> mlir::attn::translateKernel(LLVM::LLVMFuncOp kernel, const Chip &chip) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  kernel->getContext()->appendDialectRegistry(registry);

  // The machine level is unchanged, for the host device; changes for PTX only happen in a copy.
  OwningOpRef<gpu::GPUModuleOp> copy = moduleOf(kernel);
  lowerToAsm(*copy);
  lowerCacheHints(*copy, chip);
  if (!chip.convertsE4M3)
    expandConversions(*copy);
  if (!chip.overlapsLaunches) // launches are sequential on this chip, so these operations are useless
    copy->walk([](Operation *op) {
      if (isa<NVVM::GriddepcontrolOp>(op))
        op->erase();
    });
  RewritePatternSet patterns(kernel->getContext());
  populateNVVMToLLVMConversionPatterns(patterns);
  walkAndApplyPatterns(*copy, std::move(patterns)); // operations without an intrinsic become inline assembly

  KernelIR ir;
  ir.context = std::make_unique<llvm::LLVMContext>();
  ir.module = translateModuleToLLVMIR(*copy, *ir.context, kernel.getName(), /*disableVerification=*/true);
  if (!ir.module)
    return kernel.emitError("cannot be translated to LLVM IR");
  constexpr int64_t roomyBlocks = 3;
  auto schedule = tile::scheduleAttr.get(kernel);
  ir.hoists =
      chip.overlapsLaunches && schedule && schedule.hasFewRows() && schedule.getBlocks() <= roomyBlocks;
  ir.contracts = !numericsAttr.isOn(kernel); // which sums are contracted depends on the code around them
  return ir;
}

llvm::Expected<std::string> mlir::attn::printPTX(KernelIR ir, const Chip &chip) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine(makeTargetMachine(chip, ir.contracts, error));
  if (!machine)
    return llvm::createStringError("no NVPTX backend: " + error);
  ir.module->setTargetTriple(machine->getTargetTriple());
  ir.module->setDataLayout(machine->createDataLayout());
  PassGate gate;
  ir.context->setOptPassGate(gate);
  optimize(*ir.module, *machine, ir.hoists);

  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError("the NVPTX backend cannot emit assembly");
  codegen.run(*ir.module);
  return text.str().str();
}

std::string mlir::attn::joinPTX(ArrayRef<StringRef> modules) {
  std::string joined = modules.front().str();
  auto headOf = [](StringRef module) { return module.take_front(module.find(".visible .entry")); };
  llvm::StringSet<> said; // version, target, the memory that kernels share
  for (StringRef line : llvm::split(headOf(modules.front()), '\n'))
    said.insert(line);
  for (StringRef module : modules.drop_front()) {
    for (StringRef line : llvm::split(headOf(module), '\n'))
      if (said.insert(line).second)
        joined += (line + "\n").str();
    joined += module.drop_front(headOf(module).size());
  }
  return joined;
}

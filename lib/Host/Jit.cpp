//===- Jit.cpp - LLVM IR to code in this process --------------------------===//
//
// ORC without the wrappers: no platform set-up, next to no optimization (kernels
// are scalar code of one lane; their vectors live in the runtime), and a CPU model
// from a short list, so that a kernel rounds alike on every machine.
//
//===----------------------------------------------------------------------===//
#include "Jit.h"
#include "attn_rt/host/Abi.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace llvm;

namespace attn::host {

Jit::Jit() = default;
Jit::~Jit() = default;

static orc::JITTargetMachineBuilder targetMachine() {
  // Not the host's own model: AVX512_BF16 flushes subnormals where PTX rounds them.
  StringMap<bool> features = sys::getHostCPUFeatures();
  auto has = [&](StringRef name) { return features.lookup(name); };
  orc::JITTargetMachineBuilder builder{Triple(sys::getProcessTriple())};
  if (builder.getTargetTriple().getArch() == Triple::x86_64)
    builder.setCPU(has("avx2") && has("fma") && has("f16c") && has("bmi2") ? "x86-64-v3" : "x86-64-v2");
  builder.setCodeGenOptLevel(CodeGenOptLevel::None);
  builder.setRelocationModel(Reloc::PIC_);
  builder.setCodeModel(CodeModel::Small);
  return builder;
}

/// Loads of lane fields and repeated arithmetic go, and with FastISel behind it a kernel of 4,500
/// operations takes 50 ms instead of the 200 of O1. It runs 5 % slower: the time is in the runtime.
static void optimize(Module &module, TargetMachine &machine) {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  FunctionPassManager passes;
  passes.addPass(EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(SimplifyCFGPass());
  ModulePassManager all;
  all.addPass(createModuleToFunctionPassAdaptor(std::move(passes)));
  all.run(module, modules);
}

Expected<std::unique_ptr<Jit>> Jit::compile(std::unique_ptr<Module> module,
                                            std::unique_ptr<LLVMContext> context) {
  static bool initialized = [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialized;
  orc::JITTargetMachineBuilder builder = targetMachine();
  Expected<std::unique_ptr<TargetMachine>> machine = builder.createTargetMachine();
  if (!machine)
    return machine.takeError();
  module->setTargetTriple((*machine)->getTargetTriple());
  module->setDataLayout((*machine)->createDataLayout());
  optimize(*module, **machine);

  Expected<std::unique_ptr<orc::LLJIT>> engine = orc::LLJITBuilder()
                                                     .setJITTargetMachineBuilder(std::move(builder))
                                                     .setPlatformSetUp(orc::setUpInactivePlatform)
                                                     .create();
  if (!engine)
    return engine.takeError();
  orc::JITDylib &main = (*engine)->getMainJITDylib();
  orc::SymbolMap symbols;
  for (const rt::host::Symbol &s : rt::host::abiSymbols())
    symbols[(*engine)->mangleAndIntern(s.name)] = {orc::ExecutorAddr::fromPtr(s.address),
                                                   JITSymbolFlags::Exported};
  if (Error error = main.define(orc::absoluteSymbols(std::move(symbols))))
    return std::move(error);
  // libm and libc: what the optimizer or code generation may call.
  auto process =
      orc::DynamicLibrarySearchGenerator::GetForCurrentProcess((*engine)->getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  main.addGenerator(std::move(*process));
  if (Error error = (*engine)->addIRModule(orc::ThreadSafeModule(std::move(module), std::move(context))))
    return std::move(error);
  std::unique_ptr<Jit> jit(new Jit);
  jit->engine = std::move(*engine);
  return jit;
}

Expected<void *> Jit::lookup(StringRef name) {
  Expected<orc::ExecutorAddr> address = engine->lookup(name);
  if (!address)
    return address.takeError();
  return address->toPtr<void *>();
}

} // namespace attn::host

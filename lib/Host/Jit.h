//===- Jit.h - LLVM IR to code in this process ------------------*- C++ -*-===//
#ifndef ATTN_LIB_HOST_JIT_H
#define ATTN_LIB_HOST_JIT_H

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace llvm::orc {
class LLJIT;
}

namespace attn::host {

class Jit {
public:
  static llvm::Expected<std::unique_ptr<Jit>> compile(std::unique_ptr<llvm::Module> module,
                                                      std::unique_ptr<llvm::LLVMContext> context);
  ~Jit();
  llvm::Expected<void *> lookup(llvm::StringRef name);

private:
  Jit();
  std::unique_ptr<llvm::orc::LLJIT> engine;
};

} // namespace attn::host

#endif

//===- Native.h - LLVM IR to an object for this CPU -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_HOST_NATIVE_H
#define ATTN_LIB_HOST_NATIVE_H

#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <vector>

namespace attn::host {

/// Compiles a module to a relocatable ELF object for a model of rt::host::cpuModels.
llvm::Expected<std::vector<uint8_t>> compileToObject(llvm::Module &module, llvm::StringRef cpu);

} // namespace attn::host

#endif

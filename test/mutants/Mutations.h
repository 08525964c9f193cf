//===- Mutations.h - Kernels with one operation too few or too many -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_MUTANTS_MUTATIONS_H
#define ATTN_TEST_MUTANTS_MUTATIONS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <string>
#include <vector>

namespace attn::test {

/// Shift: a number that is read, or the head of a row, is one too large.
enum class Mutation { Drop, Double, Shift };
inline constexpr const char *mutationNames[] = {"drop", "double", "shift"};

/// What is done to one operation of a kernel at the machine level.
struct Mutant {
  Mutation mutation;
  size_t position;  ///< of the operation in a walk over its kernel
  std::string op;   ///< its name
  unsigned ordinal; ///< among the kernel's operations of that name, from 0
  std::string text; ///< as printed
};

/// Every synchronizing operation and everything that writes memory, dropped; every copy and every arrival,
/// doubled. Where `shifts`, also every number that is read from global memory (a bound of tokens or rows, a
/// position, an LSE, a delta) and the head of a packed row in its group, one too large.
std::vector<Mutant> listMutants(mlir::LLVM::LLVMFuncOp kernel, bool shifts);

/// Does it, in a kernel with the same operations as the one that the list was made of.
void mutate(mlir::LLVM::LLVMFuncOp kernel, const Mutant &mutant);

} // namespace attn::test

#endif

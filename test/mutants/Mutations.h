//===- Mutations.h - Kernels with one operation too few or too many -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_MUTANTS_MUTATIONS_H
#define ATTN_TEST_MUTANTS_MUTATIONS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <string>
#include <vector>

namespace attn::test {

/// Shift: a number that is read, or the head of a row, becomes one too large.
enum class Mutation { Drop, Double, Shift };
inline constexpr const char *mutationNames[] = {"drop", "double", "shift"};

/// The mutation of one operation of a kernel at the machine level.
struct Mutant {
  Mutation mutation;
  size_t position;  ///< of the operation in a walk over its kernel
  std::string op;   ///< its name
  unsigned ordinal; ///< among the kernel's operations of that name, from 0
  std::string text; ///< as printed
};

/// Lists the mutants of a kernel. Every synchronizing operation and every write to memory is dropped; every
/// copy and every arrival is doubled. With `shifts`, two kinds of numbers also become one too large: every
/// number that is read from global memory (a bound of tokens or rows, a position, an LSE, a delta), and the
/// head of a packed row in its group.
std::vector<Mutant> listMutants(mlir::LLVM::LLVMFuncOp kernel, bool shifts);

/// Applies the mutation, in a kernel with the same operations as the listed one.
void mutate(mlir::LLVM::LLVMFuncOp kernel, const Mutant &mutant);

} // namespace attn::test

#endif

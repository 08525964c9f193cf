//===- Ptxas.h - NVIDIA's assembler, if installed ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_PTXAS_H
#define ATTN_TARGET_PTXAS_H

#include "attn/Support/Chip.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::attn {

struct Cubin {
  std::vector<uint8_t> bytes;
  std::string log; ///< the output of ptxas -v: registers, spills, warnings
};

/// ptxas did not end in time, and would probably not with the next kernel either.
class PtxasTooLate : public llvm::ErrorInfo<PtxasTooLate, llvm::StringError> {
public:
  static char ID;
  using ErrorInfo::ErrorInfo;
};

/// Returns the path of ptxas: $ATTN_PTXAS, the PATH, the package nvidia-cuda-nvcc beside the Python package,
/// then the usual location of the CUDA toolkit. Empty if there is none.
std::string findPtxas();

/// Identifies the ptxas that `findPtxas` finds, by its file's hash and, for a script that starts another
/// program, the output of `ptxas --version`. Empty if there is none. Reads the whole file: some 5 ms.
std::string identifyPtxas();

/// Assembles PTX. Fails with the words of ptxas and the command that repeats it, for which the PTX is kept.
/// Kills a ptxas that does not end after $ATTN_PTXAS_SECONDS (120; 0: never), and fails with PtxasTooLate.
llvm::Expected<Cubin> assemble(llvm::StringRef ptx, const Chip &chip);

} // namespace mlir::attn

#endif

//===- Ptxas.h - NVIDIA's assembler, where there is one ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_PTXAS_H
#define ATTN_TARGET_PTXAS_H

#include "attn/Support/Chip.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::attn {

struct Cubin {
  std::vector<uint8_t> bytes;
  std::string log; ///< what ptxas -v printed: registers, spills, warnings
};

/// ptxas did not end in time, and would probably not with the next kernel either.
class PtxasTooLate : public llvm::ErrorInfo<PtxasTooLate, llvm::StringError> {
public:
  static char ID;
  using ErrorInfo::ErrorInfo;
};

/// Path of ptxas: $ATTN_PTXAS, the PATH, then the usual place of the CUDA toolkit. Empty when there is none.
std::string findPtxas();

/// Which assembler the ptxas is that `findPtxas` finds: its file's hash and, where the file is a script that
/// starts another program, what `ptxas --version` prints. Empty when there is none. Reads the whole file:
/// some 5 ms.
std::string identifyPtxas();

/// Assembles PTX. Fails with ptxas's own words and the command that repeats it (the PTX is kept for that),
/// also where ptxas does not end: after $ATTN_PTXAS_SECONDS (120; 0: never) it is killed (PtxasTooLate).
llvm::Expected<Cubin> assemble(llvm::StringRef ptx, const Chip &chip);

} // namespace mlir::attn

#endif

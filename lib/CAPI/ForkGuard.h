//===- ForkGuard.h - No fork during a compiler call -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_CAPI_FORKGUARD_H
#define ATTN_LIB_CAPI_FORKGUARD_H

namespace attn::capi {

/// Makes fork() in other threads wait until a compiler call ends. LLVM and MLIR make static objects and
/// hold locks during a call. A child has neither the thread that would finish them nor the one that would
/// unlock them, so its first compiler call would wait for ever. posix_spawn and vfork do not wait. A guard
/// must not be made under another one of the same thread.
class ForkGuard {
public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard &) = delete;
  ForkGuard &operator=(const ForkGuard &) = delete;
};

} // namespace attn::capi

#endif

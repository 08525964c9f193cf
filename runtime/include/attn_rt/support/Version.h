//===- Version.h - The version of the library -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SUPPORT_VERSION_H
#define ATTN_RT_SUPPORT_VERSION_H

namespace attn::rt {

/// The version of attn, for example "0.1.0".
const char *version();

} // namespace attn::rt

#endif

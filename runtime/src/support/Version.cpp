//===- Version.cpp - The version of the library ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Version.h"

const char *attn::rt::version() { return ATTN_VERSION; }

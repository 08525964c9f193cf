//===- File.h - Whole files in, whole files out -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SUPPORT_FILE_H
#define ATTN_RT_SUPPORT_FILE_H

#include "attn_rt/support/Status.h"

#include <string>
#include <string_view>

namespace attn::rt {

/// Reads the bytes of a regular file. The error names the path and the system's reason.
Result<std::string> readFile(const std::string &path);

/// Writes a file whole or not at all: writes the bytes to a file beside the path, then renames it, so that a
/// failed or interrupted write leaves the old file.
Status writeFile(const std::string &path, std::string_view bytes);

} // namespace attn::rt

#endif

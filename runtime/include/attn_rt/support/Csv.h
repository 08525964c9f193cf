//===- Csv.h - One integer column of a CSV file -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Traces of real requests come as CSV; `kv_len=@FILE.csv:COLUMN` reads one
// column of them. Quoted cells, doubled quotes, CRLF and a byte-order mark are
// understood; anything else that is odd is an error with line and column.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_CSV_H
#define ATTN_RT_SUPPORT_CSV_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace attn::rt {

/// Reads the integers under `column`, a name in the first line. `name` is the file's name in messages.
Result<std::vector<int64_t>> readCsvColumn(std::string_view text, std::string_view column,
                                           std::string_view name);

/// Reads a column given as "FILE.csv:COLUMN", with or without a leading '@'.
Result<std::vector<int64_t>> readCsvReference(std::string_view reference);

} // namespace attn::rt

#endif

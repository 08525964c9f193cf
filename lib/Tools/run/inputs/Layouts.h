//===- Layouts.h - Ways in which tensors lie --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_LAYOUTS_H
#define ATTN_TOOLS_RUN_INPUTS_LAYOUTS_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/tensor/Strides.h"

namespace attn::run {

/// How engines lay queries, keys, values and outputs. Their features lie behind one another everywhere.
///   dense        as their shapes say
///   heads-first  all tokens of a head, then those of the next: of a page, an instance, the rows
///   interleaved  keys and values page by page in one allocation; rows as of a projection to q, k and v
///   halves       heads first, and features of keys and values one behind the other in one line
///   padded       room behind each head, token and page
inline constexpr std::string_view layoutWords[] = {"dense", "heads-first", "interleaved", "halves", "padded"};

/// The strides of a kernel's tensors that lie so; of tensors that do not exist yet, for so many rows.
rt::StrideMap stridesOf(std::string_view layout, const rt::Manifest &manifest, const rt::TensorMap &tensors,
                        int64_t rows);

} // namespace attn::run

#endif

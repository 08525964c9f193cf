//===- Layouts.h - Memory layouts of tensors --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_LAYOUTS_H
#define ATTN_TOOLS_RUN_INPUTS_LAYOUTS_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/tensor/Strides.h"

namespace attn::run {

/// Memory layouts of queries, keys, values and outputs in engines. Features are contiguous in all of them.
///   dense        in the order of their shapes
///   heads-first  all tokens of a head, then those of the next: in a page, an instance, the rows
///   interleaved  keys and values page by page in one allocation; rows like a fused projection to q, k and v
///   halves       heads first, with keys and values of a token adjacent in one line
///   padded       padding after each head, token and page
inline constexpr std::string_view layoutWords[] = {"dense", "heads-first", "interleaved", "halves", "padded"};

/// Returns the strides of a kernel's tensors in this layout; for missing tensors, with this number of rows.
rt::StrideMap stridesOf(std::string_view layout, const rt::Manifest &manifest, const rt::TensorMap &tensors,
                        int64_t rows);

} // namespace attn::run

#endif

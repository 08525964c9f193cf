//===- Strategy.h - How what several rows see is read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ablation of DeFT (arXiv 2404.00242). A *node* is an instance of keys and
// values with the rows that see it: a sequence, a shared prompt, an inner node of
// a tree.
//
//     by-query       every group of rows reads its whole path (Radix, Flash-Decoding)
//     by-node        a node is one item for all rows that see it, never cut
//     by-node-chunk  the same, cut into chunks of fixed length
//     flatten        nodes shared if it pays, laid end to end, cut into equal shares
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_STRATEGY_H
#define ATTN_RT_PLAN_STRATEGY_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace attn::rt {

enum class Strategy : uint8_t { ByQuery, ByNode, ByNodeChunk, Flatten };
inline constexpr std::string_view strategyNames[] = {"by-query", "by-node", "by-node-chunk", "flatten"};
/// The strategy of a name; empty if there is none.
std::optional<Strategy> parseStrategy(std::string_view name);

inline constexpr int64_t chunkTokens = 512; ///< for by-node-chunk

} // namespace attn::rt

#endif

//===- Requests.h - Traces of production requests ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lengths of prompts and answers, and what prompts share: lengths as Azure published
// them, prefixes as Mooncake did (blocks of 512 tokens; equal block numbers mean equal
// prefixes up to there).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_REQUESTS_H
#define ATTN_RT_WORKLOAD_REQUESTS_H

#include "attn_rt/workload/Workload.h"

#include <span>
#include <string_view>

namespace attn::rt {

inline constexpr int32_t prefixBlock = 512; ///< tokens

struct Request {
  int32_t context = 0, generated = 0; ///< tokens
  std::vector<int64_t> blocks; ///< of its context, one for each prefixBlock tokens begun; empty: unknown
};

/// Reads Azure's CSV: columns ContextTokens and GeneratedTokens, in order of arrival.
Result<std::vector<Request>> readRequestsCsv(std::string_view text, std::string_view name);
/// Reads Mooncake's JSON lines: {"timestamp", "input_length", "output_length", "hash_ids"}, in order of
/// arrival. Errors name the line.
Result<std::vector<Request>> readRequestsJsonl(std::string_view text, std::string_view name);

/// Generates requests of such lengths. About `sharing` requests share a prefix of some blocks (1: nothing is
/// shared). A seed gives the same requests on every machine.
std::vector<Request> generateRequests(uint64_t seed, int32_t count, int32_t sharing = 1);

/// The forest of these requests decoded together, each with `generated` tokens of its answer, or with all of
/// a shorter answer. Equal prefixes are one path; a request's last tokens are a node with a row.
WorkloadStep requestStep(std::span<const Request> requests, int32_t generated);

} // namespace attn::rt

#endif

//===- Wgmma.cpp - Issues of a warpgroup ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Accumulator word i of lane 4g + q of warp w is row 16w + g + 8 (i >> 1 & 1), column
// 8 (i >> 2) + 2q + (i & 1); a left operand in registers is laid out as for mma.sync.
//
//===----------------------------------------------------------------------===//
#include "Wgmma.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include "host/machine/Half.h"
#include <cstring>

using namespace attn::rt::host;

namespace {

void passAccumulators(Warp &warp, Tensor &tensor, Issue &issue, size_t c, const WgmmaChain &chain,
                      float *sums, bool first) {
  unsigned w = warp.index % kGroupWarps;
  if (chain.acc == WgmmaChain::kNoWord) {
    std::memset(sums + size_t(16 * w) * chain.n, 0, sizeof(float) * 16 * chain.n);
    return;
  }
  uint32_t head = warp.word(chain.acc)[0];
  bool flies = inFlight(head), same = true;
  for (uint32_t i = 0; i < chain.n / 2u; ++i) {
    const uint32_t *words = warp.word(chain.acc + i);
    if (flies) {
      same &= allLanes(words, head + i);
      continue;
    }
    forWord(w, i, chain.n, [&](uint32_t lane, size_t at) {
      same &= !inFlight(words[lane]);
      sums[at] = std::bit_cast<float>(words[lane]);
    });
  }
  uint64_t from = ~0ull;
  if (flies) {
    Issue *other = issueOf(tensor, w, head);
    uint32_t which = head >> kInFlightChainShift & (kMaxChains - 1);
    const auto &programs = warp.block->grid->kernel.wgmmaPrograms;
    same &=
        other && other != &issue && (head & 127) == 0 && programs[other->program].chains[which].n == chain.n;
    if (same)
      from = other->number * kMaxChains + which;
  }
  if (!same || (!first && from != issue.from[c]))
    misuse(warp, issue.op, "accumulators of another wgmma in flight, or of another shape");
  else
    issue.from[c] = from;
}

void passOperands(Warp &warp, Issue &issue, const WgmmaProgram &program, bool first) {
  unsigned w = warp.index % kGroupWarps;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const WgmmaStep &step = program.steps[s];
    auto descriptor = [&](uint16_t word, uint64_t &kept) {
      const uint32_t *low = warp.word(word), *high = warp.word(word + 1);
      uint64_t mine = low[0] | uint64_t(high[0]) << 32;
      if (!allLanes(low, low[0]) || !allLanes(high, high[0]) || (!first && mine != kept))
        misuse(warp, step.op, "threads of the warpgroup pass different descriptors");
      if (first)
        kept = mine;
    };
    descriptor(step.rhsAddress, issue.descriptors[2 * s + 1]);
    if (step.lhs == WgmmaChain::kNoWord) {
      descriptor(step.lhsAddress, issue.descriptors[2 * s]);
      continue;
    }
    float *panel = issue.left.data() + (s * kWgmmaRows + 16 * w) * kWgmmaDepth;
    for (unsigned r = 0; r < 4; ++r) {
      const auto *halves = reinterpret_cast<const uint16_t *>(warp.word(step.lhs + r));
      for (unsigned g = 0; g < 8; ++g)
        for (unsigned i = 0; i < 8; ++i) {
          uint16_t h = halves[8 * g + i];
          panel[(g + 8 * (r & 1)) * kWgmmaDepth + 8 * (r >> 1) + i] =
              step.half ? halfToFloat(h) : bfloatToFloat(h);
        }
    }
  }
}

void begin(Block &block, Tensor &tensor, Issue &issue, uint64_t number, const Group &g, uint32_t group,
           uint32_t thread) {
  // The entry still holds an old issue: it and the issues that continue its sums are computed now.
  if (issue.number != ~0ull && !issue.computed)
    computeUpTo(block, tensor, *std::min_element(tensor.issued, tensor.issued + kGroupWarps));
  const WgmmaProgram &program = block.grid->kernel.wgmmaPrograms[g.a];
  size_t sums = 0;
  for (const WgmmaChain &chain : program.chains)
    sums += size_t(kWgmmaRows) * chain.n;
  issue.number = number;
  issue.program = g.a;
  issue.op = g.op;
  issue.thread = thread;
  issue.group = group;
  issue.warps = 0;
  issue.computed = false;
  issue.descriptors.resize(2 * program.steps.size());
  issue.left.resize(program.steps.size() * kWgmmaRows * kWgmmaDepth);
  issue.sums.resize(sums);
  issue.from.assign(program.chains.size(), ~0ull);
}

void complete(Block &block, Tensor &tensor, Issue &issue, unsigned group) {
  const WgmmaProgram &program = block.grid->kernel.wgmmaPrograms[issue.program];
  for (const WgmmaStep &step : program.steps)
    block.flops += 2ull * kWgmmaRows * program.chains[step.chain].n * kWgmmaDepth;
  if (block.checker)
    block.checker->wgmmaIssued(issue, group);
  AsyncEffects effects = block.grid->options.asyncEffects;
  if (effects == AsyncEffects::Eager || (effects == AsyncEffects::Random && block.effects.below(2) == 0))
    computeUpTo(block, tensor, issue.number + 1);
  if (effects != AsyncEffects::Delayed)
    finishWaits(block, group);
}

bool runWgmma(Warp &warp, const Group &g) {
  Block &block = *warp.block;
  unsigned w = warp.index % kGroupWarps, group = warp.index / kGroupWarps;
  if (group >= block.tensors.size() || g.arrived != ~0u) {
    misuse(warp, g.op, "wgmma needs all 128 threads of a warpgroup");
    std::fill_n(warp.word(0), kLanes, kInFlight);
    return true;
  }
  Tensor &tensor = *block.tensors[group];
  uint64_t number = tensor.issued[w]++;
  Issue &issue = tensor.at(number);
  uint32_t commit = warp.lanes[0].wgmmaCommits + 1;
  bool first = issue.number != number;
  if (first)
    begin(block, tensor, issue, number, g, commit, warp.lanes[0].thread);
  if (issue.program != g.a || issue.group != commit) {
    misuse(warp, g.op, "the warps of the warpgroup execute different wgmma, or commit them differently");
  } else {
    const WgmmaProgram &program = block.grid->kernel.wgmmaPrograms[g.a];
    for (const Lane &lane : warp.lanes)
      if (!lane.wgmmaFence) {
        misuse(warp, g.op, "no wgmma.fence since the registers were last touched");
        break;
      }
    passOperands(warp, issue, program, first);
    float *sums = issue.sums.data();
    for (size_t c = 0; c < program.chains.size(); ++c) {
      passAccumulators(warp, tensor, issue, c, program.chains[c], sums, first);
      sums += size_t(kWgmmaRows) * program.chains[c].n;
    }
  }
  if (block.checker)
    block.checker->wgmmaView(warp, issue.views[w]);
  issue.warps |= 1u << w;
  std::fill_n(warp.word(0), kLanes,
              kInFlight | static_cast<uint32_t>(number % kIssueNumbers) << kInFlightIssueShift);
  if (issue.warps == kAllWarps)
    complete(block, tensor, issue, group);
  return true;
}

} // namespace

uint32_t attn_host_wgmma(LaneAbi *abi, uint32_t op, uint32_t program) {
  Lane &lane = laneOf(abi);
  rendezvous(lane, runWgmma, meetKey(Meet::Wgmma, program), ~0u, op, program);
  return lane.exchange[0];
}

void attn_host_misuse(LaneAbi *abi, uint32_t op, uint32_t which) {
  Lane &lane = laneOf(abi);
  lane.block->report(FindingKind::Sync, op, lane,
                     static_cast<Misuse>(which) == Misuse::ReadInFlight
                         ? "an accumulator in flight is used before wgmma.wait_group has returned it"
                         : "a register is written after the wgmma.fence that should order it before this");
}

//===- WgmmaWait.cpp - Waits of a warpgroup -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A wait may last. If the seed asks for the latest moment, it lasts until no other
// thread can continue: if a stage was released too early, it has been produced again by
// then, and the product shows it.
//===----------------------------------------------------------------------===//
#include "Wgmma.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"

using namespace attn::rt::host;

namespace {

/// Ends a wait. Returns false until all warps have issued what is waited for.
bool finishWait(Warp &warp, uint32_t op, uint32_t newest, uint32_t registers) {
  Block &block = *warp.block;
  Tensor &tensor = tensorOf(warp);
  unsigned w = warp.index % kGroupWarps;
  uint32_t commits = warp.lanes[0].wgmmaCommits, limit = commits > newest ? commits - newest : 0;
  uint64_t end = tensor.computed;
  for (uint64_t n = tensor.issued[w] > Tensor::kKept ? tensor.issued[w] - Tensor::kKept : 0;
       n < tensor.issued[w]; ++n) {
    const Issue &issue = tensor.at(n);
    if (issue.number != n || issue.group > limit)
      continue;
    if (issue.warps != kAllWarps)
      return false;
    end = std::max(end, n + 1);
  }
  computeUpTo(block, tensor, end);
  tensor.retired[w] = std::max(tensor.retired[w], limit);
  if (block.checker)
    block.checker->wgmmaRetired(warp, limit);
  for (Lane &lane : warp.lanes)
    lane.wgmmaFence = false;
  for (uint32_t i = 0; i < registers; ++i) {
    uint32_t *words = warp.word(i), head = words[0];
    if (!inFlight(head))
      continue;
    Issue *issue = issueOf(tensor, w, head);
    if (!issue || !allLanes(words, head)) {
      misuse(warp, op, "waits for registers of several wgmma, or of one long gone");
      continue;
    }
    if (issue->group > limit || !issue->computed) {
      misuse(warp, op, "leaves the wgmma that it takes registers of in flight");
      continue;
    }
    const auto &chains = block.grid->kernel.wgmmaPrograms[issue->program].chains;
    uint32_t which = head >> kInFlightChainShift & (kMaxChains - 1);
    const float *sums = issue->sums.data();
    for (uint32_t c = 0; c < which; ++c)
      sums += size_t(kWgmmaRows) * chains[c].n;
    forWord(w, head & 127, chains[which].n,
            [&](uint32_t lane, size_t at) { words[lane] = std::bit_cast<uint32_t>(sums[at]); });
  }
  return true;
}

bool runWait(Warp &warp, const Group &g) {
  if (warp.block->grid->options.asyncEffects != AsyncEffects::Delayed && finishWait(warp, g.op, g.a, g.b))
    return true;
  tensorOf(warp).waiting[warp.index % kGroupWarps] = {g.arrived, g.op, g.a, g.b};
  return false;
}

} // namespace

bool attn::rt::host::finishWaits(Block &block, unsigned group) {
  Tensor &tensor = *block.tensors[group];
  bool any = false;
  for (unsigned w = 0; w < kGroupWarps; ++w) {
    Tensor::Waiter waiter = tensor.waiting[w];
    Warp &warp = *block.warps[group * kGroupWarps + w];
    if (!waiter.lanes || !finishWait(warp, waiter.op, waiter.newest, waiter.registers))
      continue;
    tensor.waiting[w] = Tensor::Waiter();
    block.wake(warp, waiter.lanes);
    any = true;
  }
  return any;
}

bool Block::finishDelayedWaits() {
  for (unsigned group = 0; group < tensors.size(); ++group)
    if (finishWaits(*this, group))
      return true;
  return false;
}

void attn_host_wgmma_fence(LaneAbi *abi) { laneOf(abi).wgmmaFence = true; }
void attn_host_wgmma_commit(LaneAbi *abi) { ++laneOf(abi).wgmmaCommits; }

void attn_host_wgmma_wait(LaneAbi *abi, uint32_t op, uint32_t newest, uint32_t registers) {
  Lane &lane = laneOf(abi);
  if (lane.warp->index / kGroupWarps >= lane.block->tensors.size())
    return;
  rendezvous(lane, runWait, meetKey(Meet::WgmmaWait, op), ~0u, op, newest, registers);
}

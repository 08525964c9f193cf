//===- Collectives.cpp - Barriers, shuffles and votes ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include <string>

using namespace attn::rt::host;

namespace {

constexpr uint32_t kAllLanes = ~0u;

bool runBarrier(Warp &warp, const Group &g) { return barrierArrive(warp, g, g.a, g.b, true); }
bool runArrive(Warp &warp, const Group &g) { return barrierArrive(warp, g, g.a, g.b, false); }

bool runWarpSync(Warp &warp, const Group &g) {
  if (Checker *checker = warp.block->checker)
    checker->warpSync(warp, g.arrived);
  return true;
}

void badMask(Lane &lane, uint32_t op, uint32_t mask, const char *what) {
  char text[96];
  snprintf(text, sizeof text, "lane %u executes %s whose mask %08x does not name it", lane.index, what, mask);
  lane.block->report(FindingKind::Sync, op, lane, text);
}

/// Words 0..2 hold value, b and c of every lane; 3 and 4 receive result and predicate.
bool runShuffle(Warp &warp, const Group &g) {
  const uint32_t *value = warp.word(0), *bs = warp.word(1), *cs = warp.word(2);
  uint32_t *result = warp.word(3), *valid = warp.word(4);
  auto kind = static_cast<ShuffleKind>(g.a);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (!(g.arrived >> lane & 1))
      continue;
    int segment = cs[lane] >> 8 & 31, clamp = cs[lane] & 31, b = bs[lane] & 31, l = static_cast<int>(lane);
    int high = (l & segment) | (clamp & ~segment), j = 0;
    bool p = false;
    switch (kind) {
    case ShuffleKind::Up:
      j = l - b;
      p = j >= high;
      break;
    case ShuffleKind::Down:
      j = l + b;
      p = j <= high;
      break;
    case ShuffleKind::Bfly:
      j = l ^ b;
      p = j <= high;
      break;
    case ShuffleKind::Idx:
      j = (l & segment) | (b & ~segment);
      p = j <= high;
      break;
    }
    if (!p)
      j = l;
    if (!(g.arrived >> j & 1)) {
      const char *why = warp.exited >> j & 1 ? "has exited" : "does not take part";
      warp.block->report(FindingKind::Sync, g.op, warp.lanes[lane],
                         "shuffle reads lane " + std::to_string(j) + ", which " + why);
    }
    result[lane] = value[j];
    valid[lane] = p;
  }
  return true;
}

bool runVote(Warp &warp, const Group &g) {
  const uint32_t *pred = warp.word(0);
  uint32_t ballot = 0, result = 0;
  for (uint32_t l = 0; l < kLanes; ++l)
    if ((g.arrived >> l & 1) && pred[l])
      ballot |= 1u << l;
  switch (static_cast<VoteKind>(g.a)) {
  case VoteKind::Any:
    result = ballot != 0;
    break;
  case VoteKind::All:
    result = ballot == g.arrived;
    break;
  case VoteKind::Ballot:
    result = ballot;
    break;
  case VoteKind::Uni:
    result = ballot == 0 || ballot == g.arrived;
    break;
  }
  for (uint32_t l = 0; l < kLanes; ++l)
    if (g.arrived >> l & 1)
      warp.word(3)[l] = result;
  return true;
}

/// Two lanes that name different masks in what should be one operation wait forever on a GPU, or worse. This
/// is reported when both are seen waiting.
void checkMasks(Lane &lane, uint32_t key, uint32_t mask, uint32_t op) {
  if (!(mask & lane.bit()))
    return;
  Warp &warp = *lane.warp;
  for (unsigned i = 0; i < warp.groupCount; ++i) {
    const Group &g = warp.groups[i];
    if (g.key != key || g.mask == mask || !(g.mask & lane.bit() || g.arrived & mask))
      continue;
    char text[96];
    snprintf(text, sizeof text, "mask %08x here, but lanes %08x wait with mask %08x", mask, g.arrived,
             g.mask);
    lane.block->report(FindingKind::Sync, op, lane, text);
  }
}

void meet(Lane &lane, Group::Run run, Meet kind, uint32_t detail, uint32_t mask, uint32_t op,
          const char *what) {
  uint32_t key = meetKey(kind, detail);
  if (!(mask & lane.bit())) {
    badMask(lane, op, mask, what);
    mask |= lane.bit();
  }
  if (lane.warp->groupCount)
    checkMasks(lane, key, mask, op);
  rendezvous(lane, run, key, mask, op, detail);
}

} // namespace

void attn_host_barrier(LaneAbi *abi, uint32_t op, uint32_t id, uint32_t threads) {
  Lane &lane = laneOf(abi);
  if (id >= kBarriers) {
    lane.block->report(FindingKind::Sync, op, lane,
                       "barrier " + std::to_string(id) + " does not exist (0 to 15)");
    id %= kBarriers;
  }
  rendezvous(lane, runBarrier, meetKey(Meet::Barrier, id), kAllLanes, op, id, threads);
}

void attn_host_barrier_arrive(LaneAbi *abi, uint32_t op, uint32_t id, uint32_t threads) {
  Lane &lane = laneOf(abi);
  if (id >= kBarriers) {
    lane.block->report(FindingKind::Sync, op, lane,
                       "barrier " + std::to_string(id) + " does not exist (0 to 15)");
    id %= kBarriers;
  }
  rendezvous(lane, runArrive, meetKey(Meet::Arrive, id), kAllLanes, op, id, threads);
}

void attn_host_warp_sync(LaneAbi *abi, uint32_t op, uint32_t mask) {
  meet(laneOf(abi), runWarpSync, Meet::WarpSync, 0, mask, op, "bar.warp.sync");
}

uint64_t attn_host_shuffle(LaneAbi *abi, uint32_t op, uint32_t kind, uint32_t mask, uint32_t value,
                           uint32_t b, uint32_t c) {
  Lane &lane = laneOf(abi);
  uint32_t *x = lane.exchange;
  x[0] = value;
  x[kLanes] = b;
  x[2 * kLanes] = c;
  meet(lane, runShuffle, Meet::Shuffle, kind, mask, op, "shfl.sync");
  return x[3 * kLanes] | uint64_t(x[4 * kLanes]) << 32;
}

uint32_t attn_host_vote(LaneAbi *abi, uint32_t op, uint32_t kind, uint32_t mask, uint32_t predicate) {
  Lane &lane = laneOf(abi);
  lane.exchange[0] = predicate;
  meet(lane, runVote, Meet::Vote, kind, mask, op, "vote.sync");
  return lane.exchange[3 * kLanes];
}

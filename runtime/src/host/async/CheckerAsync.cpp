//===- CheckerAsync.cpp - mbarriers, landed copies, wgmma -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mbarrier.h"
#include "Wgmma.h"
#include "host/detect/Checker.h"

namespace attn::rt::host {

bool Checker::mbarrierMade(Lane &lane, uint32_t op, Mbarrier &b) {
  if (!inShared(b.offset, 8)) {
    block->report(FindingKind::OutOfBounds, op, lane, "an mbarrier outside of the block's shared memory");
    return false;
  }
  if (!checkAlignment(lane, op, b.offset, 8, true))
    return false;
  unsigned warp = lane.warp->index;
  bool again = b.tick != 0;
  if (again)
    shadow.clearObject(b.offset);
  reportShared(lane, op, shadow.write(clocks, warp, lane.index, b.offset, 8, op), true);
  shadow.setObject(b.offset);
  b.warp = warp;
  b.lane = lane.index;
  b.tick = clocks.tick(warp);
  b.published = 0;
  b.gathered = b.passed = Knowledge();
  b.waits.clear();
  if (!again)
    b.agent = clocks.track();
  clocks.touch(lane);
  return true;
}

void Checker::mbarrierGone(Lane &lane, uint32_t op, Mbarrier &b) {
  shadow.clearObject(b.offset);
  shadow.write(clocks, lane.warp->index, lane.index, b.offset, 8, op);
  clocks.touch(lane);
}

void Checker::mbarrierUsed(Lane &lane, uint32_t op, const Mbarrier &b) {
  if (clocks.ordered(b.warp, b.lane, b.tick, lane.warp->index, lane.index))
    return;
  block->reportWith(FindingKind::Race, op, lane.thread, b.op, [&](LocalFinding &f) {
    f.address = "shared + " + std::to_string(b.offset - dynamicStart);
    f.message = "uses the mbarrier without order against its initialization by thread " +
                std::to_string(b.warp * kLanes + b.lane);
  });
}

void Checker::mbarrierReleased(Lane &lane, Mbarrier &b) { clocks.releaseLane(lane, b.gathered); }

void Checker::mbarrierCompleted(Mbarrier &b) {
  clocks.fold(*block, b.gathered);
  b.passed.join(b.gathered, clocks.agents());
  b.gathered = Knowledge();
  if (b.agent != ~0u)
    b.passed.g[b.agent] = b.passed.a[b.agent] = static_cast<uint32_t>(b.phase);
  for (const Mbarrier::Wait &wait : b.waits)
    if (!clocks.waitKnown(b.passed, wait.thread, wait.tick))
      block->reportWith(FindingKind::Sync, wait.op, wait.thread, 2, [&](LocalFinding &f) {
        f.message =
            "the mbarrier's next phase, " + std::to_string(b.phase - 1) +
            ", completes without order after this wait: a lane that comes late finds the parity of the "
            "phase behind it";
      });
  b.waits.clear();
}

void Checker::mbarrierStarted(Lane &lane, Mbarrier &b) { clocks.releaseWaits(lane, b.gathered); }

void Checker::mbarrierPassed(Lane &lane, uint32_t op, Mbarrier &b) {
  clocks.acquireLane(lane, b.passed);
  b.waits.push_back({lane.thread, clocks.waited(lane), op});
}

/// A wait names only a parity. The lane's knowledge of the barrier decides which phase that means: the next
/// phase that it has not seen, if the parity fits.
void Checker::mbarrierLag(Lane &lane, uint32_t op, const Mbarrier &b, uint32_t parity) {
  if (b.agent == ~0u)
    return;
  uint64_t seen = clocks.known(lane.warp->index, lane.index)[b.agent];
  if ((seen & 1) == parity && b.phase >= seen + 2)
    block->reportWith(FindingKind::Sync, op, lane.thread, 1, [&](LocalFinding &f) {
      f.message = "waits for phase " + std::to_string(seen) +
                  " by its parity, but the mbarrier is in phase " + std::to_string(b.phase) +
                  " already: the parity may mean another phase";
    });
}

/// A bulk copy signals an mbarrier in the async proxy. The initialization of the mbarrier, a generic write,
/// must be made known to that proxy, by the thread that initialized it or by the thread that issues the copy.
void Checker::mbarrierSignalled(Lane &lane, uint32_t op, const Mbarrier &b) {
  const unsigned warp = lane.warp->index;
  if ((b.published && clocks.ordered(b.warp, b.lane, b.published, warp, lane.index)) ||
      clocks.orderedAsync(b.warp, b.lane, b.tick, warp, lane.index))
    return;
  block->reportWith(FindingKind::Race, op, lane.thread, b.op, [&](LocalFinding &f) {
    f.address = "shared + " + std::to_string(b.offset - dynamicStart);
    f.message =
        "signals an mbarrier through the async proxy without fence.mbarrier_init or fence.proxy.async "
        "since its initialization by thread " +
        std::to_string(b.warp * kLanes + b.lane);
  });
}

void Checker::publishMbarriers(Lane &lane) {
  const unsigned warp = lane.warp->index;
  for (const auto &b : block->mbarriers)
    if (b->warp == warp && b->lane == lane.index && !b->published)
      b->published = clocks.tick(warp);
  clocks.touch(lane);
}

void Checker::fenceAsync(Lane &lane) { clocks.fenceLane(lane); }

uint32_t Checker::validBytes(const PendingCopy &copy) {
  // Copying bytes does not use them: unwritten bytes travel along and are found when they are read.
  uint32_t valid = (1u << copy.bytes) - 1;
  const Allocation *a = copy.sourceBytes ? find(copy.op, copy.source, copy.sourceBytes) : nullptr;
  if (a && a->written) {
    size_t offset = static_cast<size_t>(copy.source - a->base);
    for (uint32_t i = 0; i < copy.sourceBytes; ++i)
      if (!a->isWritten(offset + i, 1))
        valid &= ~(1u << i);
  }
  return valid;
}

void Checker::copyLanded(Lane &lane, const PendingCopy &copy, uint32_t sequence) {
  lane.landedGroup = copy.group;
  lane.landedSequence = sequence;
  lane.landedOp = copy.op;
  shadow.land(lane.warp->index, lane.index, copy.offset, copy.bytes, copy.op, validBytes(copy), sequence);
}

void Checker::copiesReleased(const Lane &lane, uint32_t sequence, Mbarrier &b) {
  b.gathered.extras.push_back({lane.thread | Clocks::kCopyQueue, sequence, 0});
}

void Checker::copiesWaited(Lane &lane, uint32_t groupLimit) {
  if (lane.copySequence && lane.landedGroup < groupLimit)
    clocks.learn(lane, {lane.thread | Clocks::kCopyQueue, lane.copySequence, 0});
}

//===----------------------------------------------------------------------===//
// wgmma
//===----------------------------------------------------------------------===//

void Checker::wgmmaView(Warp &warp, AsyncView &view) {
  clocks.settle(warp);
  const Knowledge &k = clocks.together(warp.index);
  std::copy_n(k.g, clocks.agents(), view.g);
  std::copy_n(k.a, clocks.agents(), view.a);
  view.warps = 1u << warp.index;
}

void Checker::wgmmaRetired(Warp &warp, uint32_t groups) {
  clocks.seeTogether(warp, clocks.queue(warp.index / kGroupWarps), groups);
}

/// Checks the descriptor's fields for values that are certainly wrong.
void Checker::checkDescriptor(Lane &lane, uint32_t op, const Descriptor &d) {
  if (d.base)
    block->report(FindingKind::Sync, op, lane, "a matrix descriptor with a base offset; expected 0");
  uint32_t pattern = d.width * 8;
  if (d.width && d.start % pattern >= d.width)
    block->reportWith(FindingKind::Misaligned, op, lane.thread, 0, [&](LocalFinding &f) {
      f.address = "shared address " + std::to_string(d.start);
      f.message = "a matrix that is swizzled by " + std::to_string(d.width) + " bytes starts " +
                  std::to_string(d.start % pattern) + " bytes past a multiple of " + std::to_string(pattern) +
                  ", not in the first row of a pattern";
    });
}

void Checker::wgmmaRead(Lane &lane, uint32_t op, const AsyncView &view, const uint32_t *rows, unsigned group,
                        uint32_t commit) {
  requests.operand(rows);
  for (uint32_t r = 0; r < 8; ++r) {
    if (inShared(rows[r], 16)) {
      reportShared(lane, op, shadow.readAsync(clocks, view, rows[r], group, commit), false);
      continue;
    }
    block->reportWith(FindingKind::OutOfBounds, op, lane.thread, 0, [&](LocalFinding &f) {
      f.message = "a matrix operand outside of the block's shared memory";
      f.address = "shared + " + std::to_string(int64_t(rows[r]) - dynamicStart) + " (16 bytes)";
    });
  }
}

void Checker::wgmmaIssued(const Issue &issue, unsigned group) {
  const WgmmaProgram &program = grid->kernel.wgmmaPrograms[issue.program];
  AsyncView all = issue.views[0];
  for (unsigned w = 1; w < kGroupWarps; ++w) {
    for (unsigned i = 0; i < clocks.agents(); ++i) {
      all.g[i] = std::min(all.g[i], issue.views[w].g[i]);
      all.a[i] = std::min(all.a[i], issue.views[w].a[i]);
    }
    all.warps |= issue.views[w].warps;
  }
  Lane &lane = block->warps[group * kGroupWarps]->lanes[0];
  queueOps[group] = issue.op;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const WgmmaStep &step = program.steps[s];
    Descriptor right(issue.descriptors[2 * s + 1]);
    checkDescriptor(lane, step.op, right);
    uint32_t n = program.chains[step.chain].n;
    // Reads a core matrix at a time: eight rows of 16 bytes.
    for (uint32_t column = 0; column < n; column += 8)
      for (uint32_t k = 0; k < kWgmmaDepth; k += 8) {
        uint32_t rows[8];
        for (uint32_t i = 0; i < 8; ++i)
          rows[i] = step.transposed ? right.columnChunk(column, k + i) : right.rowChunk(column + i, k);
        wgmmaRead(lane, step.op, all, rows, group, issue.group);
      }
    if (step.lhs != WgmmaChain::kNoWord)
      continue;
    Descriptor left(issue.descriptors[2 * s]);
    checkDescriptor(lane, step.op, left);
    // Each warp reads its own 16 rows only.
    for (uint32_t row = 0; row < kWgmmaRows; row += 8)
      for (uint32_t k = 0; k < kWgmmaDepth; k += 8) {
        uint32_t rows[8];
        for (uint32_t i = 0; i < 8; ++i)
          rows[i] = step.lhsTransposed ? left.columnChunk(row, k + i) : left.rowChunk(row + i, k);
        wgmmaRead(lane, step.op, issue.views[row / 16], rows, group, issue.group);
      }
  }
}

} // namespace attn::rt::host

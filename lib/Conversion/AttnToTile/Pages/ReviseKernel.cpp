//===- ReviseKernel.cpp - What a step makes of each list's tokens ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ReviseKernel.h"

#include <limits>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

ReviseKernel::ReviseKernel(ReviseTokensOp revise, func::FuncOp kernel)
    : ListKernel(revise, kernel), revise(revise), f32(b.getF32Type()) {}

void ReviseKernel::run() {
  declareTensors();
  places = b.dimension("score.dim1");
  walkLists(1, [&](Value first) {
    list = first;
    reviseList();
  });
  finish(Role::ReviseTokens, 1);
}

void ReviseKernel::reviseList() {
  Value zero = b.i32(0), number = b.wide(list);
  Value isDone = b.compare(arith::CmpIPredicate::ne, read("done", i32, b.i64(0)), zero);
  auto countOf = [&](StringRef name) { return b.select(isDone, read(name, i32, number, true), zero); };
  End left{static_cast<int64_t>(revise.getLeft()), false, "worth_high", countOf("high"),
           b.dimension("worth_high.dim1")};
  End right{static_cast<int64_t>(revise.getRight()), true, "worth_low", countOf("low"),
            b.dimension("worth_low.dim1")};
  seen = read("seen", i32, number);
  prompt = read("prompt", i32, number);
  Value sees = b.mul(number, b.i64(2)), recent = read("sees", i32, b.add(sees, b.i64(1)));
  sink = read("sees", i32, sees);
  streams = b.compare(arith::CmpIPredicate::ne, recent, zero);
  Value window = b.select(streams, recent, b.i32(1 + static_cast<int64_t>(revise.getWindow())));
  candidate = b.sub(seen, window);
  auto [high, leaving] = findTokens(left);
  auto [low, none] = findTokens(right);
  SyncOp::create(b, Scope::Warp); // scores are written, and counts read, by all lanes
  Decision decision = revise.getRelease() ? likeRelease(high, low) : likePaper(high, leaving, low);
  Decision ofWindow = streaming(leaving);
  decision = {b.select(streams, ofWindow.demoted, decision.demoted),
              b.select(streams, ofWindow.gone, decision.gone),
              b.select(streams, ofWindow.replaced, decision.replaced)};
  b.doIf(equal(lane, zero), [&] { apply(decision, left, right); });
}

std::pair<ReviseKernel::Found, ReviseKernel::Found> ReviseKernel::findTokens(const End &end) {
  Value none = b.i32(-1), most = b.i32(std::numeric_limits<int32_t>::max());
  auto loop = scf::ForOp::create(b, b.i32(0), end.count, b.i32(lanes * atOnce),
                                 ValueRange{most, most, none, most, most, none});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Token> tokens;
    Value first = b.add(loop.getInductionVar(), lane);
    for (int64_t i = 0; i < atOnce; ++i)
      tokens.push_back(load(end, b.add(first, b.i32(i * lanes))));
    auto carried = loop.getRegionIterArgs();
    Found best{carried[0], carried[1], carried[2]}, leaving{carried[3], carried[4], carried[5]};
    for (const Token &token : tokens) {
      Value score = arith::AddFOp::create(b, token.score, token.worth);
      b.doIf(token.exists, [&] { write("score", token.entry, score); });
      Found found{meanOf(token, score), token.position, token.place};
      Value isLess = either(b.less(found.mean, best.mean),
                            both(equal(found.mean, best.mean), b.less(found.position, best.position)));
      Value isBehind = both(token.exists, atMost(token.position, candidate));
      best = select(both(isBehind, isLess), found, best);
      leaving = select(both(token.exists, equal(token.position, candidate)), found, leaving);
    }
    scf::YieldOp::create(
        b, ValueRange{best.mean, best.position, best.place, leaving.mean, leaving.position, leaving.place});
  }
  auto results = loop.getResults();
  return {least({results[0], results[1], results[2]}), onlyOne({results[3], results[4], results[5]})};
}

/// Of a place behind the last the last one's.
ReviseKernel::Token ReviseKernel::load(const End &end, Value place) {
  Value inside = b.min(place, b.sub(end.count, b.i32(1)));
  Token token;
  token.place = place;
  token.exists = b.less(place, end.count);
  token.entry = entryOf(end, inside);
  token.worth = read(end.worth, f32, elementOf(list, end.room, inside));
  token.position = read("position", i32, token.entry, true);
  token.score = read("score", f32, token.entry, true);
  return token;
}

/// Rows since the token came; of a prompt's those before its last ones were not counted.
Value ReviseKernel::meanOf(const Token &token, Value score) {
  Value rows = b.sub(seen, token.position);
  if (int64_t counted = revise.getRows()) {
    Value before = b.sub(b.sub(prompt, token.position), b.i32(counted));
    rows = b.sub(rows, b.max(before, b.i32(0)));
  }
  Value number = arith::SIToFPOp::create(b, f32, b.max(rows, b.i32(1)));
  return arith::BitcastOp::create(b, i32, arith::DivFOp::create(b, score, number));
}

ReviseKernel::Found ReviseKernel::least(Found mine) {
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    Value from = b.createOrFold<arith::XOrIOp>(lane, b.i32(distance));
    Found other{fromLane(mine.mean, from), fromLane(mine.position, from), fromLane(mine.place, from)};
    Value isLess = either(b.less(other.mean, mine.mean),
                          both(equal(other.mean, mine.mean), b.less(other.position, mine.position)));
    mine = select(isLess, other, mine);
  }
  return mine;
}

ReviseKernel::Found ReviseKernel::onlyOne(Found mine) {
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2) {
    Value from = b.createOrFold<arith::XOrIOp>(lane, b.i32(distance));
    Found other{fromLane(mine.mean, from), fromLane(mine.position, from), fromLane(mine.place, from)};
    mine = select(isPlace(other.place), other, mine);
  }
  return mine;
}

Value ReviseKernel::below(const Found &token, int64_t limit) {
  Value index = b.add(b.mul(b.wide(list), b.i64(2)), b.i64(limit));
  Value length = arith::SIToFPOp::create(b, f32, b.max(seen, b.i32(1)));
  Value threshold = arith::DivFOp::create(b, read("limits", f32, index), length);
  Value mean = arith::BitcastOp::create(b, f32, token.mean);
  Value isLess = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, mean, threshold);
  return both(isPlace(token.place), isLess);
}

ReviseKernel::Decision ReviseKernel::likePaper(const Found &high, const Found &leaving, const Found &low) {
  Value none = b.i32(-1), notHigh = below(leaving, 0), notLow = below(leaving, 1);
  Value isLow = both(notHigh, negate(notLow));
  Value hasVictim = both(both(isPlace(leaving.place), negate(notHigh)), below(high, 0));
  return {b.select(isLow, leaving.place, b.select(hasVictim, high.place, none)),
          b.select(notLow, leaving.place, none), b.select(both(isLow, below(low, 1)), low.place, none)};
}

ReviseKernel::Decision ReviseKernel::likeRelease(const Found &high, const Found &low) {
  Value none = b.i32(-1), hasVictim = below(high, 0);
  return {b.select(hasVictim, high.place, none), none,
          b.select(both(hasVictim, below(low, 1)), low.place, none)};
}

ReviseKernel::Decision ReviseKernel::streaming(const Found &leaving) {
  Value none = b.i32(-1), isBehind = both(isPlace(leaving.place), atMost(sink, leaving.position));
  return {none, b.select(isBehind, leaving.place, none), none};
}

void ReviseKernel::apply(const Decision &decision, const End &left, const End &right) {
  Value none = b.i32(-1), one = b.i32(1), number = b.wide(list);
  for (StringRef slots : {"down_from", "down_to", "move_from", "move_to"})
    write(slots, number, none);
  b.doIf(isPlace(decision.demoted), [&] {
    Value isReplaced = isPlace(decision.replaced);
    Value to = b.select(isReplaced, decision.replaced, right.count);
    write("down_from", number, slotOf(left, decision.demoted));
    write("down_to", number, slotOf(right, to));
    copyToken(left, decision.demoted, right, to);
    write("low", number, b.select(isReplaced, right.count, b.add(right.count, one)));
  });
  Value hole = b.max(decision.demoted, decision.gone), last = b.sub(left.count, one);
  b.doIf(isPlace(hole), [&] {
    write("high", number, last);
    b.doIf(b.less(hole, last), [&] {
      write("move_from", number, slotOf(left, last));
      write("move_to", number, slotOf(left, hole));
      copyToken(left, last, left, hole);
    });
  });
}

void ReviseKernel::copyToken(const End &fromEnd, Value from, const End &toEnd, Value to) {
  Value source = entryOf(fromEnd, from), target = entryOf(toEnd, to);
  write("score", target, read("score", f32, source, true));
  write("position", target, read("position", i32, source, true));
}

ReviseKernel::Found ReviseKernel::select(Value condition, const Found &x, const Found &y) {
  return {b.select(condition, x.mean, y.mean), b.select(condition, x.position, y.position),
          b.select(condition, x.place, y.place)};
}

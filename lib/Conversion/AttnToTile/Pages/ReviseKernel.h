//===- ReviseKernel.h - What a step makes of each list's tokens -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp has a list at a time. It goes over the tokens at the left and then over those
// at the right, adds up what they were worth, and each lane remembers its token that is
// worth least, and the one that leaves the window. The lanes agree on one of each; the
// first lane then writes what becomes of them. Lists know nothing of each other. One
// that streams has a window of its own, and keeps or loses what leaves it by its position.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PAGES_REVISEKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PAGES_REVISEKERNEL_H

#include "ListKernel.h"

namespace mlir::attn {

class ReviseKernel : ListKernel {
public:
  /// Tokens of a lane whose loads are under way together.
  static constexpr int64_t atOnce = 4;

  ReviseKernel(ReviseTokensOp revise, func::FuncOp kernel);
  void run();

private:
  /// The left or the right end of a list.
  struct End {
    int64_t pageTokens;
    bool isRight;
    StringRef worth;
    Value count, room; ///< tokens, and numbers of `worth` for a list
  };
  /// A token: the bits of its mean, which are in the order of the numbers since none is negative, its
  /// position and its place. Without one the place is -1.
  struct Found {
    Value mean, position, place;
  };
  /// A token while its loads are under way.
  struct Token {
    Value place, exists, entry, score, worth, position;
  };

  void reviseList();
  /// Adds up what an end's tokens were worth. The one behind the window that is worth least, and that in
  /// front of it.
  std::pair<Found, Found> findTokens(const End &end);
  Token load(const End &end, Value place);
  Value meanOf(const Token &token, Value score);
  /// Of all lanes: the token that is worth least, of equals the earlier one; the only one.
  Found least(Found mine);
  Found onlyOne(Found mine);
  /// Whether there is such a token, and it is worth less than a limit.
  Value below(const Found &token, int64_t limit);

  struct Decision {
    Value demoted;  ///< a place at the left that goes to the right
    Value gone;     ///< a place at the left whose token goes
    Value replaced; ///< a place at the right whose token goes, for the demoted one
  };
  Decision likePaper(const Found &high, const Found &leaving, const Found &low);
  Decision likeRelease(const Found &high, const Found &low);
  /// Of a list that streams: what its rows see no more goes.
  Decision streaming(const Found &leaving);
  void apply(const Decision &decision, const End &left, const End &right);
  /// Gives the token in a place to another place's; slots are those of keys and values.
  void copyToken(const End &fromEnd, Value from, const End &toEnd, Value to);

  Value slotOf(const End &end, Value place) {
    return ListKernel::slotOf(list, place, end.pageTokens, end.isRight);
  }
  /// Where a token's score and position stand.
  Value entryOf(const End &end, Value place) {
    Value page = pageOf(list, place, end.pageTokens, end.isRight);
    return elementOf(page, places, b.rem(place, end.pageTokens));
  }
  Found select(Value condition, const Found &x, const Found &y);
  Value isPlace(Value place) { return atMost(b.i32(0), place); }

  ReviseTokensOp revise;
  Type f32;
  Value list, places;
  Value seen, prompt, candidate; ///< of the list: candidate: the position in front of the window
  Value streams, sink;           ///< whether it streams, and the first tokens that it then keeps
};

} // namespace mlir::attn

#endif

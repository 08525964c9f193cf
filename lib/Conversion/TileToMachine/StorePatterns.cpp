//===- StorePatterns.cpp - Fragments and scores to global memory -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Accumulators go out a full 32-byte sector per quad: fp32 as they lie, 16-bit after neighbouring lanes have
/// exchanged halves of two adjacent 8-column blocks, 8-bit after four lanes have exchanged quarters of four
/// such blocks. If features lie in runs, a lane has whole sectors, and
/// neighbouring lanes exchange halves of sectors, because a lane writes at most 16 bytes at once.
struct StorePattern : TilePattern<StoreOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StoreOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    if (type.getRank() == 1) {
      storeVector(e, op, adaptor);
    } else {
      for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) // 8 lines at a time
        storeLines(e, op, adaptor, row);
    }
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// Lets one lane of those that hold an element write it.
  static void storeVector(Emitter &e, StoreOp op, OneToNOpAdaptor adaptor) {
    FragmentType type = op.getFragment().getType();
    Type element = op.getBuffer().getType().getElement();
    Value place = type.getLayout() == Layout::Row ? e.lanes.quad : e.lanes.group;
    Value first = e.b.createOrFold<arith::CmpIOp>(op.getLoc(), arith::CmpIPredicate::eq, place, e.i32(0));
    for (auto [i, value] : llvm::enumerate(adaptor.getFragment())) {
      Value line = lineOfRegister(e, type.getLayout(), i), lines = adaptor.getLines().front();
      e.doIf(e.both(first, e.less(line, lines)), [&](Emitter &inner) {
        Value index = inner.mul(inner.widen(inlineRegion(op.getSlot(), line, inner.b)), op.getStride());
        inner.storeGlobal(value, inner.globalAt(adaptor.getBuffer().front(), element, index), 4);
      });
    }
  }

  /// The chunk that a lane writes at once.
  struct Part {
    Value column, value; ///< column in the fragment
    int64_t end;         ///< no lane writes columns from here on
    unsigned bytes = 8;
  };

  static void storeLines(Emitter &e, StoreOp op, OneToNOpAdaptor adaptor, int64_t row) {
    Type element = op.getBuffer().getType().getElement();
    Value column = adaptor.getColumn().empty() ? Value() : adaptor.getColumn().front();
    int64_t blocks = op.getFragment().getType().getSizes()[1] / 8;
    Value line = e.add(e.lanes.group, row * 8);
    auto pairOf = [&](int64_t block) {
      return adaptor.getFragment().slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
    };
    FragmentType type = op.getFragment().getType();
    SmallVector<Part> parts =
        isa<Float8E4M3FNType>(element)
            ? type.getOrder() ? narrowRuns(e, type, pairOf) : narrowParts(e, blocks, pairOf)
        : type.getOrder() ? partsOfRuns(e, element, type, pairOf)
        : element.isF32() ? wholeParts(e, element, blocks, pairOf)
                          : packedParts(e, element, blocks, pairOf);
    e.doIf(e.less(line, adaptor.getLines().front()), [&](Emitter &inner) {
      Value index = inner.mul(inner.widen(inlineRegion(op.getSlot(), line, inner.b)), op.getStride());
      for (auto [local, value, end, bytes] : parts) {
        Value col = column ? inner.add(local, column) : local;
        auto store = [&](Emitter &atom) {
          Value place = atom.add(index, atom.widen(col));
          atom.storeGlobal(value, atom.globalAt(adaptor.getBuffer().front(), element, place), bytes);
        };
        if (!op.getColumns() || (!column && end <= static_cast<int64_t>(*op.getColumns())))
          store(inner);
        else
          inner.doIf(inner.less(col, inner.i32(*op.getColumns())), store);
      }
    });
  }

  using PairOf = function_ref<ValueRange(int64_t)>;
  static Value vectorOf(Emitter &e, Type element, Value first, Value second) {
    Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(2, element));
    vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, first, e.i32(0));
    return LLVM::InsertElementOp::create(e.b, e.loc, vector, second, e.i32(1));
  }

  static SmallVector<Part> wholeParts(Emitter &e, Type element, int64_t blocks, PairOf pairOf) {
    SmallVector<Part> parts;
    for (int64_t block = 0; block < blocks; ++block) {
      Value vector = vectorOf(e, element, pairOf(block)[0], pairOf(block)[1]);
      parts.push_back({e.add(e.mul(e.lanes.quad, 2), block * 8), vector, block * 8 + 8});
    }
    return parts;
  }

  static SmallVector<Part> packedParts(Emitter &e, Type element, int64_t blocks, PairOf pairOf) {
    SmallVector<Part> parts;
    Value odd = e.band(e.lanes.quad, 1);
    Value isOdd = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, odd, e.i32(0));
    for (int64_t block = 0; block < blocks; block += 2) {
      Value even = e.pack(pairOf(block)[0], pairOf(block)[1], element);
      Value next = e.pack(pairOf(block + 1)[0], pairOf(block + 1)[1], element);
      Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(isOdd, even, next), e.i32(1));
      Value low = e.select(isOdd, received, even), high = e.select(isOdd, next, received);
      Value firstColumn = e.add(e.mul(e.sub(e.lanes.quad, odd), 2), e.mul(odd, 8));
      parts.push_back(
          {e.add(firstColumn, block * 8), vectorOf(e, e.b.getI32Type(), low, high), block * 8 + 16});
    }
    return parts;
  }

  /// Lane q of a quad gets block q of four. Pairs of columns travel in two steps: lanes two apart
  /// exchange two blocks, and neighbours one. The last two of an odd number of pairs of blocks go out in
  /// words.
  static SmallVector<Part> narrowParts(Emitter &e, int64_t blocks, PairOf pairOf) {
    SmallVector<Part> parts;
    auto has = [&](int64_t bit) -> Value {
      return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, e.band(e.lanes.quad, bit),
                                             e.i32(0));
    };
    Value isOdd = has(1), isUpper = has(2);
    /// Exchanges with the lane `apart` lanes away: this lane keeps `second` if `flag`, else `first`. Returns
    /// what the lower and the upper of both lanes had of it.
    auto exchange = [&](Value flag, Value first, Value second, int64_t apart) {
      Value kept = e.select(flag, second, first);
      Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(flag, first, second), e.i32(apart));
      return std::pair(e.select(flag, received, kept), e.select(flag, kept, received));
    };
    auto lows = [&](Value x, Value y) { return e.bytes(x, y, {0, 1, 4, 5}); };
    auto highs = [&](Value x, Value y) { return e.bytes(x, y, {2, 3, 6, 7}); };
    auto pack = [&](int64_t block) { return e.packE4M3(pairOf(block)[0], pairOf(block)[1]); };
    int64_t block = 0;
    for (; block + 4 <= blocks; block += 4) {
      auto [lower, upper] =
          exchange(isUpper, lows(pack(block), pack(block + 1)), lows(pack(block + 2), pack(block + 3)), 2);
      auto [even, odd] = exchange(isOdd, lows(lower, upper), highs(lower, upper), 1);
      parts.push_back({e.add(e.mul(e.lanes.quad, 8), block * 8),
                       vectorOf(e, e.b.getI32Type(), lows(even, odd), highs(even, odd)), block * 8 + 32});
    }
    if (block < blocks) {
      auto [even, odd] = exchange(isOdd, pack(block), pack(block + 1), 1);
      Value column = e.add(e.mul(e.band(e.lanes.quad, 2), 2), e.mul(e.band(e.lanes.quad, 1), 8));
      parts.push_back({e.add(column, block * 8), lows(even, odd), block * 8 + 16, 4});
    }
    return parts;
  }

  /// A lane's columns of the blocks of a span are neighbouring features, which go out 8 at once: lines begin
  /// at multiples of 8 bytes.
  static SmallVector<Part> narrowRuns(Emitter &e, FragmentType type, PairOf pairOf) {
    SmallVector<Part> parts;
    for (FragmentType::Span span : type.getSpans()) {
      int64_t run = span.size / 8;
      auto word = [&](int64_t first) {
        auto feature = [&](int64_t i) {
          return pairOf(span.first / 8 + (first + i) % run)[(first + i) / run];
        };
        return e.packE4M3(feature(0), feature(1), feature(2), feature(3));
      };
      Value lane = e.add(e.mul(e.lanes.quad, 2 * run), span.first);
      for (int64_t i = 0; i < 2 * run; i += 8)
        parts.push_back(
            {e.add(lane, i), vectorOf(e, e.b.getI32Type(), word(i), word(i + 4)), span.first + span.size});
    }
    return parts;
  }

  /// A lane's columns 2q and 2q + 1 of the blocks of a span are neighbouring features: chunks of 16 bytes,
  /// two of which are a sector.
  static SmallVector<Part> partsOfRuns(Emitter &e, Type element, FragmentType type, PairOf pairOf) {
    SmallVector<Part> parts;
    int64_t perUnit = element.isF32() ? 4 : 8;
    Value odd = e.band(e.lanes.quad, 1);
    Value isOdd = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, odd, e.i32(0));
    for (FragmentType::Span span : type.getSpans()) {
      int64_t run = span.size / 8;
      SmallVector<SmallVector<Value>> units;
      SmallVector<Value> features;
      for (int64_t i = 0; i < 2 * run; ++i)
        features.push_back(pairOf(span.first / 8 + i % run)[i / run]);
      for (int64_t i = 0; i < 2 * run; i += perUnit)
        units.push_back(wordsOf(e, element, ArrayRef<Value>(features).slice(i, perUnit)));
      Value lane = e.mul(e.lanes.quad, 2 * run);
      auto part = [&](Value column, ArrayRef<Value> words) {
        Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(4, e.b.getI32Type()));
        for (auto [i, word] : llvm::enumerate(words))
          vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, word, e.i32(i));
        parts.push_back({e.add(column, span.first), vector, span.first + span.size, 16});
      };
      if (units.size() == 1) {
        part(lane, units[0]);
        continue;
      }
      // The even lane gets the first halves of both lanes' sectors, the odd lane the second halves.
      Value even = e.mul(e.sub(e.lanes.quad, odd), 2 * run), half = e.mul(odd, perUnit);
      for (size_t i = 0; i < units.size(); i += 2) {
        SmallVector<Value> ofEven, ofOdd;
        for (size_t w = 0; w < 4; ++w) {
          Value first = units[i][w], second = units[i + 1][w];
          Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(isOdd, first, second), e.i32(1));
          ofEven.push_back(e.select(isOdd, received, first));
          ofOdd.push_back(e.select(isOdd, second, received));
        }
        Value column = e.add(e.add(even, half), static_cast<int64_t>(i) * perUnit);
        part(column, ofEven);
        part(e.add(column, 2 * run), ofOdd);
      }
    }
    return parts;
  }
  /// The elements as they lie in memory.
  static SmallVector<Value> wordsOf(Emitter &e, Type element, ArrayRef<Value> features) {
    SmallVector<Value> words;
    if (element.isF32())
      for (Value feature : features)
        words.push_back(e.bitcast(e.b.getI32Type(), feature));
    else
      for (size_t i = 0; i < features.size(); i += 2)
        words.push_back(e.pack(features[i], features[i + 1], element));
    return words;
  }
};

struct StoreLanesPattern : TilePattern<StoreLanesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StoreLanesOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type f32 = rewriter.getF32Type();
    ValueRange registers = adaptor.getFragment();
    for (int64_t first = 0; first < static_cast<int64_t>(registers.size()); first += lanesUnit) {
      Value unit = LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(lanesUnit, f32));
      for (int64_t i = 0; i < lanesUnit; ++i)
        unit = LLVM::InsertElementOp::create(rewriter, op.getLoc(), unit, registers[first + i], e.i32(i));
      Value index = indexOfUnit(e, adaptor.getIndex().front(), first);
      e.storeGlobal(unit, e.globalAt(adaptor.getBuffer().front(), f32, index), lanesUnit * 4);
    }
    rewriter.eraseOp(op);
    return success();
  }
};

/// A lane has two neighbouring columns of every eighth line of an accumulator. If these are heads of a token,
/// and tokens begin with whole words, they are stored as one word. Otherwise they are stored as halves, each
/// made by an integer instruction first: ptxas would store 16 bits of a register that a float sum wrote as
/// the float's value, converted.
///
/// This code stands in the loop over keys of a step of decoding. Most of its tiles are whole: there no key is
/// tested, and addresses are a lane's first one plus constants.
struct StoreScoresPattern : TilePattern<StoreScoresOp> {
  using TilePattern::TilePattern;

  LogicalResult matchAndRewrite(StoreScoresOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType type = op.getFragment().getType();
    bool keysFirst = type.getAxes()[0] == Axis::Key;
    int64_t keys = type.getSizes()[keysFirst ? 0 : 1], group = op.getGroup();
    Emitter e = emitter(op, rewriter);
    Value column = e.mul(e.lanes.quad, 2);
    Lane lane{keysFirst ? e.lanes.group : column, keysFirst ? column : e.lanes.group};
    SmallVector<Piece> pieces = piecesOf(op, adaptor, e);
    Value slot = e.widen(inlineRegion(op.getSlot(), lane.key, rewriter));
    Value buffer = adaptor.getBuffer().front(), tokens = adaptor.getTokens().front();
    Type element = op.getBuffer().getType().getElement();
    Value first = e.globalAt(buffer, element, e.add(e.mul(slot, group), e.widen(lane.head)));
    auto store = [&](Emitter &inner, const Piece &piece) {
      int64_t place = piece.key * op.getApart() * group + piece.head;
      passCacheHint(
          op, inner.storeGlobal(piece.codes, inner.globalAt(first, element, inner.i64(place)), piece.bytes));
    };
    auto isHead = [&](Emitter &inner, int64_t head) {
      return inner.less(inner.add(lane.head, head), inner.i32(group));
    };
    Value isWhole = e.less(e.i32(keys - 1), tokens);
    auto whole = [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      for (int64_t head = 0; head < group; ++head)
        if (llvm::any_of(pieces, [&](const Piece &piece) { return piece.head == head; }))
          inner.doIf(isHead(inner, head), [&](Emitter &some) {
            for (const Piece &piece : pieces)
              if (piece.head == head)
                store(some, piece);
          });
      scf::YieldOp::create(builder, loc);
    };
    auto some = [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      for (const Piece &piece : pieces)
        inner.doIf(inner.both(inner.less(inner.add(lane.key, piece.key), tokens), isHead(inner, piece.head)),
                   [&](Emitter &one) { store(one, piece); });
      scf::YieldOp::create(builder, loc);
    };
    scf::IfOp::create(rewriter, op.getLoc(), isWhole, whole, some);
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// The lane's first key and head.
  struct Lane {
    Value key, head;
  };
  /// Scores that are stored at once; their key and head are counted from the lane's first ones.
  struct Piece {
    int64_t key, head;
    Value codes;
    unsigned bytes;
  };

  static SmallVector<Piece> piecesOf(StoreScoresOp op, OneToNOpAdaptor adaptor, Emitter &e) {
    FragmentType type = op.getFragment().getType();
    bool keysFirst = type.getAxes()[0] == Axis::Key;
    int64_t group = op.getGroup(), blocks = type.getSizes()[1] / 8;
    SmallVector<Piece> pieces;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row)
      for (int64_t block = 0; block < blocks; ++block) {
        if ((keysFirst ? block : row) * 8 >= group)
          continue;
        ValueRange pair = adaptor.getFragment().slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
        Value unit = adaptor.getUnit().front();
        Value first = codeOf(e, pair[0], unit), second = codeOf(e, pair[1], unit);
        if (keysFirst && group % 2 == 0) {
          pieces.push_back({row * 8, block * 8, e.bytes(first, second, {0, 1, 4, 5}), 4});
          continue;
        }
        for (auto [at, code] : {std::pair(block * 8, first), std::pair(block * 8 + 1, second)}) {
          Value low = e.bytes(code, code, {0, 1, 4, 5});
          Value half = LLVM::TruncOp::create(e.b, e.loc, e.b.getI16Type(), low);
          pieces.push_back({keysFirst ? row * 8 : at, keysFirst ? at : row * 8, half, 2});
        }
      }
    return pieces;
  }

  /// The nearest integer plus 2^15, in the low half: a sum with 1.5 * 2^23 + 2^15 has it in the last bits of
  /// its mantissa.
  static Value codeOf(Emitter &e, Value number, Value unit) {
    constexpr float most = 32767, rounds = (3 << 22) + (1 << 15);
    auto f32 = [&](float value) -> Value {
      return LLVM::ConstantOp::create(e.b, e.loc, e.b.getF32Type(), e.b.getF32FloatAttr(value));
    };
    Value sum = LLVM::FMAOp::create(e.b, e.loc, number, unit, f32(rounds));
    Value notBelow = LLVM::MaxNumOp::create(e.b, e.loc, sum, f32(rounds - most));
    Value inside = LLVM::MinNumOp::create(e.b, e.loc, notBelow, f32(rounds + most));
    return e.bitcast(e.b.getI32Type(), inside);
  }
};

} // namespace

void tile::populateStorePattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns.add<StorePattern, StoreLanesPattern>(converter, patterns.getContext(), lanes);
}

void tile::populateStoreScoresPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<StoreScoresPattern>(converter, patterns.getContext(), lanes);
}

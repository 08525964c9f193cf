//===- ConvertPatterns.cpp - Fragments from one layout to another ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two-axis fragments are taken apart into *words* of 32 bits, in the order of
// an accumulator's registers: for each 8x8 matrix of a 16x8 block, the upper
// before the lower, one word of two neighbouring columns if elements have 16
// bits, otherwise two words of one element. Words of `lhs` with 16-bit elements
// are its registers, in their order.
//
// If a lane needs two words and the lanes that hold them need two of its own, a
// lane knows which of its words is needed in each of two exchanges, and each
// register travels once.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

int64_t bitsOf(FragmentType type) { return type.getElement().getIntOrFloatBitWidth(); }

/// The words and registers of one lane.
class LayoutConverter {
public:
  explicit LayoutConverter(Emitter &e) : e(e) {}
  SmallVector<Value> oneAxis(FragmentType from, FragmentType to, ValueRange registers);
  SmallVector<Value> twoAxes(FragmentType from, FragmentType to, ValueRange registers);

private:
  using Words = SmallVector<Value>;

  // Words of `lhs`, for each width.
  Words wordsOfLhs32(ValueRange registers);
  Words wordsOfLhs8(FragmentType type, ValueRange registers);
  SmallVector<Value> lhs32OfWords(const Words &words);
  SmallVector<Value> lhs8OfWords(FragmentType type, const Words &words);
  Words transpose(FragmentType from, const Words &words);

  std::pair<Value, Value> exchange(Value first, Value second, Value own, Value lane, int64_t flip,
                                   Value swapped);
  Value widen(Value element);
  Value narrow(Value word, Type type);
  Value pair(Value low, Value high);
  Value half(Value word, int64_t i, Type type);
  /// Bit `i` of a number below 8, as a condition.
  Value bit(Value value, int64_t i) {
    return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, e.band(value, 1 << i), e.i32(0));
  }
  Value fromLane(Value value, Value lane) { return e.shuffle(NVVM::ShflKind::idx, value, lane); }
  /// The first lane of this lane's quad.
  Value firstOfQuad() { return e.mul(e.lanes.group, 4); }

  Emitter &e;
};

/// The number of an 8x8 matrix; `row` and `col` count matrices.
size_t matrixIndex(FragmentType type, int64_t row, int64_t col) {
  return (row / 2 * (type.getSizes()[1] / 8) + col) * 2 + row % 2;
}

//===----------------------------------------------------------------------===//
// Elements and words
//===----------------------------------------------------------------------===//

Value LayoutConverter::widen(Value element) {
  Type type = element.getType();
  int64_t bits = type.getIntOrFloatBitWidth();
  if (isa<FloatType>(type))
    element = e.b.createOrFold<arith::BitcastOp>(e.loc, e.b.getIntegerType(bits), element);
  return bits == 32 ? element : e.b.createOrFold<arith::ExtUIOp>(e.loc, e.b.getI32Type(), element);
}

Value LayoutConverter::narrow(Value word, Type type) {
  int64_t bits = type.getIntOrFloatBitWidth();
  if (bits != 32)
    word = e.b.createOrFold<arith::TruncIOp>(e.loc, e.b.getIntegerType(bits), word);
  return isa<FloatType>(type) ? e.b.createOrFold<arith::BitcastOp>(e.loc, type, word) : word;
}

Value LayoutConverter::pair(Value low, Value high) {
  Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(2, low.getType()));
  vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, low, e.i32(0));
  vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, high, e.i32(1));
  return e.bitcast(e.b.getI32Type(), vector);
}

Value LayoutConverter::half(Value word, int64_t i, Type type) {
  Value vector = e.bitcast(VectorType::get(2, type), word);
  return LLVM::ExtractElementOp::create(e.b, e.loc, vector, e.i32(i));
}

/// Exchanges two words for two: the first with `lane`, the second with `lane ^ flip`. A lane gives its second
/// word first if `own`, and receives the words in the other order if `swapped`.
std::pair<Value, Value> LayoutConverter::exchange(Value first, Value second, Value own, Value lane,
                                                  int64_t flip, Value swapped) {
  Value x = fromLane(e.select(own, second, first), lane);
  Value y = fromLane(e.select(own, first, second), e.bxor(lane, flip));
  return {e.select(swapped, y, x), e.select(swapped, x, y)};
}

//===----------------------------------------------------------------------===//
// Between accumulators and left operands, within a quad
//===----------------------------------------------------------------------===//

// Lane q holds columns 2q and 2q + 1 of an accumulator, and columns q and q + 4 of a left operand.
LayoutConverter::Words LayoutConverter::wordsOfLhs32(ValueRange registers) {
  Value quad = e.lanes.quad, even = bit(quad, 0), upper = bit(quad, 1);
  Value lane = e.add(firstOfQuad(), e.add(e.mul(e.band(quad, 1), 2), e.shr(quad, 1)));
  Words words(registers.size());
  for (size_t block = 0; block < registers.size(); block += 4)
    for (size_t row = 0; row < 2; ++row) // of matrices
      std::tie(words[block + 2 * row], words[block + 2 * row + 1]) =
          exchange(registers[block + row], registers[block + row + 2], even, lane, 1, upper);
  return words;
}

SmallVector<Value> LayoutConverter::lhs32OfWords(const Words &words) {
  Value quad = e.lanes.quad, even = bit(quad, 0), upper = bit(quad, 1);
  Value lane = e.add(firstOfQuad(), e.add(e.mul(e.band(quad, 1), 2), e.shr(quad, 1)));
  SmallVector<Value> registers(words.size());
  for (size_t block = 0; block < words.size(); block += 4)
    for (size_t row = 0; row < 2; ++row)
      std::tie(registers[block + row], registers[block + row + 2]) =
          exchange(words[block + 2 * row], words[block + 2 * row + 1], upper, lane, 2, even);
  return registers;
}

// Four bytes of a left operand are two pairs of an accumulator's columns, which lie in neighbouring lanes.
// For the 16 columns of two matrices, lanes 0 and 1 of the quad have the left matrix, lanes 2 and 3 the right
// one.
LayoutConverter::Words LayoutConverter::wordsOfLhs8(FragmentType type, ValueRange registers) {
  Value quad = e.lanes.quad, shift = e.mul(e.band(quad, 1), 16);
  Words words(registers.size() * 4);
  for (size_t i = 0; i < registers.size(); ++i) {
    int64_t blocks = type.getSizes()[1] / 32, block = i / 4;
    int64_t row = block / blocks * 2 + i % 2, col = block % blocks * 4 + i % 4 / 2 * 2;
    for (int64_t matrix = 0; matrix < 2; ++matrix) {
      Value lane = e.add(firstOfQuad(), e.add(e.shr(quad, 1), 2 * matrix));
      Value bytes = e.b.createOrFold<arith::ShRUIOp>(e.loc, fromLane(registers[i], lane), shift);
      size_t word = matrixIndex(type, row, col + matrix) * 2;
      words[word] = e.band(bytes, 0xff);
      words[word + 1] = e.band(e.shr(bytes, 8), 0xff);
    }
  }
  return words;
}

SmallVector<Value> LayoutConverter::lhs8OfWords(FragmentType type, const Words &words) {
  Value quad = e.lanes.quad, shift = e.mul(e.shr(quad, 1), 16);
  auto shl = [&](Value x, int64_t bits) { return e.b.createOrFold<arith::ShLIOp>(e.loc, x, e.i32(bits)); };
  auto either = [&](Value x, Value y) { return e.b.createOrFold<arith::OrIOp>(e.loc, x, y); };
  SmallVector<Value> registers(words.size() / 4);
  for (size_t i = 0; i < registers.size(); ++i) {
    int64_t blocks = type.getSizes()[1] / 32, block = i / 4;
    int64_t row = block / blocks * 2 + i % 2, col = block % blocks * 4 + i % 4 / 2 * 2;
    auto pairOf = [&](int64_t matrix) {
      size_t word = matrixIndex(type, row, col + matrix) * 2;
      return either(words[word], shl(words[word + 1], 8));
    };
    Value both = either(pairOf(0), shl(pairOf(1), 16));
    SmallVector<Value, 2> halves;
    for (int64_t next = 0; next < 2; ++next) {
      Value lane = e.add(firstOfQuad(), e.add(e.mul(e.band(quad, 1), 2), next));
      Value pairs = e.b.createOrFold<arith::ShRUIOp>(e.loc, fromLane(both, lane), shift);
      halves.push_back(e.band(pairs, 0xffff));
    }
    registers[i] = either(halves[0], shl(halves[1], 16));
  }
  return registers;
}

//===----------------------------------------------------------------------===//
// Transposition, and fragments as a whole
//===----------------------------------------------------------------------===//

/// Transposes matrix by matrix, and puts each into the position of its transpose.
LayoutConverter::Words LayoutConverter::transpose(FragmentType from, const Words &words) {
  int64_t rows = from.getSizes()[0] / 8, cols = from.getSizes()[1] / 8;
  Words result(words.size());
  auto target = [&](int64_t row, int64_t col) { return (col / 2 * rows + row) * 2 + col % 2; };
  if (bitsOf(from) == 16) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col)
        result[target(row, col)] = e.moveMatrix(words[matrixIndex(from, row, col)]);
    return result;
  }
  // Columns 2q and 2q + 1 of row g become rows: from lanes 2q and 2q + 1 of groups to lane g / 2 of the quad.
  Value group = e.lanes.group, quad = e.lanes.quad, odd = bit(group, 0);
  Value lane = e.add(e.mul(e.add(e.mul(quad, 2), e.band(group, 1)), 4), e.shr(group, 1));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) {
      size_t source = matrixIndex(from, row, col) * 2, to = target(row, col) * 2;
      std::tie(result[to], result[to + 1]) = exchange(words[source], words[source + 1], odd, lane, 4, odd);
    }
  return result;
}

SmallVector<Value> LayoutConverter::twoAxes(FragmentType from, FragmentType to, ValueRange registers) {
  int64_t bits = bitsOf(from);
  Words words;
  if (from.getLayout() == Layout::Lhs)
    words = bits == 32  ? wordsOfLhs32(registers)
            : bits == 8 ? wordsOfLhs8(from, registers)
                        : Words(registers);
  else if (bits == 16)
    for (size_t i = 0; i < registers.size(); i += 2)
      words.push_back(pair(registers[i], registers[i + 1]));
  else
    words = llvm::map_to_vector(registers, [&](Value element) { return widen(element); });

  if (from.getAxes() != to.getAxes())
    words = transpose(from, words);

  if (to.getLayout() == Layout::Lhs)
    return bits == 32 ? lhs32OfWords(words) : bits == 8 ? lhs8OfWords(to, words) : words;
  Type type = registerType(to);
  if (bits != 16)
    return llvm::map_to_vector(words, [&](Value word) { return narrow(word, type); });
  SmallVector<Value> elements;
  for (Value word : words)
    for (int64_t i = 0; i < 2; ++i)
      elements.push_back(half(word, i, type));
  return elements;
}

/// A row's value lies in all lanes of quad `row % 8`, a column's in lane `column % 8 / 2` of all quads.
SmallVector<Value> LayoutConverter::oneAxis(FragmentType from, FragmentType to, ValueRange registers) {
  Value group = e.lanes.group, quad = e.lanes.quad;
  Type type = registerType(to);
  SmallVector<Value> words = llvm::map_to_vector(registers, [&](Value value) { return widen(value); });
  SmallVector<Value> results;
  if (from.getLayout() == to.getLayout())
    return SmallVector<Value>(registers);
  if (to.getLayout() == Layout::Col) {
    for (int64_t i = 0; i < to.getRegisters(); ++i)
      results.push_back(narrow(fromLane(words[i / 2], e.add(e.mul(quad, 8), i % 2 * 4)), type));
    return results;
  }
  // Even groups give even columns, odd groups odd ones.
  Value lane = e.add(e.mul(e.band(group, 1), 4), e.shr(group, 1)), odd = bit(group, 0);
  for (int64_t i = 0; i < to.getRegisters(); ++i)
    results.push_back(narrow(fromLane(e.select(odd, words[2 * i + 1], words[2 * i]), lane), type));
  return results;
}

struct ConvertPattern : TilePattern<ConvertOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ConvertOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType from = op.getSource().getType(), to = op.getResult().getType();
    LayoutConverter converter(e);
    SmallVector<Value> registers = from.getRank() == 1 ? converter.oneAxis(from, to, adaptor.getSource())
                                                       : converter.twoAxes(from, to, adaptor.getSource());
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

} // namespace

void tile::populateConvertPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                   const LaneMap &lanes) {
  patterns.add<ConvertPattern>(converter, patterns.getContext(), lanes);
}

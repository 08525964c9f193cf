//===- MixedRows.cpp - Lines of quantized numbers and others --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A line has quantized numbers, an f32 scale for each group of them, and a rest
// of bf16. A lane converts eight neighbouring numbers, which are of one kind:
// quantized ones are eight bytes, and the first lane of their group writes the
// scale; others are sixteen. Groups are whole parts of a warp.
//
//===----------------------------------------------------------------------===//
#include "RowAccess.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

static constexpr int64_t codeWords = 2, restWords = 4, wordBytes = 4;

RowExpansion::Chunk RowExpansion::mixedChunkOf(Value there, Value line, Value column) {
  return {there, b.mul(line, b.i64(rowNumbers / wordBytes)), column};
}

Value RowExpansion::isRest(const rt::StorePart &part, Value column) {
  return b.compare(arith::CmpIPredicate::sge, column,
                   b.i32(static_cast<int32_t>(part.format.rowCoded(part.dim) / rowNumbers)));
}

/// The addresses of a lane's quantized numbers, their scale, and its part of the rest, in words.
static Value codesAt(KernelBuilder &b, const RowExpansion::Chunk &place) {
  return b.add(place.index, b.wide(b.mul(place.column, b.i32(codeWords))));
}
static Value scaleAt(KernelBuilder &b, const rt::StorePart &part, const RowExpansion::Chunk &place) {
  Value group = b.div(place.column, part.format.group / rowNumbers);
  return b.add(place.index, b.wide(b.add(group, b.i32(part.format.rowCoded(part.dim) / wordBytes))));
}
static Value restAt(KernelBuilder &b, const rt::StorePart &part, const RowExpansion::Chunk &place) {
  const int64_t before = part.format.rowCoded(part.dim) / rowNumbers;
  Value word = b.mul(b.sub(place.column, b.i32(before)), b.i32(restWords));
  return b.add(place.index, b.wide(b.add(word, b.i32(part.format.restByte(part.dim) / wordBytes))));
}

Words RowExpansion::readMixed(const rt::StorePart &part, Value buffer, const Chunk &place) {
  SmallVector<Type> codes(codeWords, i32), rest(restWords, i32), all(codeWords + 1 + restWords, i32);
  Value none = b.i32(0);
  auto loaded = scf::IfOp::create(b, all, place.there, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loaded.elseBlock());
  scf::YieldOp::create(b, SmallVector<Value>(all.size(), none));
  b.setInsertionPointToStart(loaded.thenBlock());
  auto branch = scf::IfOp::create(b, all, isRest(part, place.column), /*withElseRegion=*/true);
  scf::YieldOp::create(b, branch.getResults());
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> words(codeWords + 1, none);
  llvm::append_range(words, ReadAdjacentOp::create(b, rest, buffer, restAt(b, part, place)).getValues());
  scf::YieldOp::create(b, words);
  b.setInsertionPointToStart(branch.elseBlock());
  words.clear();
  llvm::append_range(words, ReadAdjacentOp::create(b, codes, buffer, codesAt(b, place)).getValues());
  words.push_back(tile::ReadOp::create(b, i32, buffer, scaleAt(b, part, place), b.getUnitAttr()));
  words.append(restWords, none);
  scf::YieldOp::create(b, words);
  return Words(loaded.getResults());
}

void RowExpansion::writeMixed(const rt::StorePart &part, Value buffer, const Chunk &place,
                              ArrayRef<Value> words) {
  auto stored = scf::IfOp::create(b, place.there);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(stored.thenYield());
  auto branch = scf::IfOp::create(b, isRest(part, place.column), /*withElseRegion=*/true);
  b.setInsertionPoint(branch.thenYield());
  WriteAdjacentOp::create(b, words.drop_front(codeWords + 1), buffer, restAt(b, part, place));
  b.setInsertionPoint(branch.elseYield());
  WriteAdjacentOp::create(b, words.take_front(codeWords), buffer, codesAt(b, place));
  Value inGroup = b.rem(place.column, part.format.group / rowNumbers);
  b.doIf(b.compare(arith::CmpIPredicate::eq, inGroup, b.i32(0)),
         [&] { tile::WriteOp::create(b, words[codeWords], buffer, scaleAt(b, part, place)); });
}

//===- Source.h - Rows and tokens that are copied ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two ways in for queries, keys and values. A *gather* computes an address for every 16
// bytes, in many threads: it takes every store. A *fetch* tells the hardware's copy
// engine which box of a tensor is wanted, in one thread: it needs the lines of a box to
// lie in consecutive slots, which is so in dense and packed stores and inside a page.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_SOURCE_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_SOURCE_H

#include "StagedKernel.h"

#include "attn/Dialect/Attn/IR/Stores.h"

namespace mlir::attn {

/// Writes copies of rows or tokens to tiles.
class Source {
public:
  explicit Source(StagedKernel &kernel) : k(kernel), b(kernel.b) {}
  virtual ~Source() = default;

  /// Whether the schedule says that boxes are fetched: by warps that only copy.
  virtual bool isLoadedByTma() = 0;
  /// Finds out where lines or boxes lie, in front of copies by warps of this scope.
  virtual void locate(tile::Scope) {}
  /// Copies to tiles of these names at once.
  virtual void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) = 0;
  /// Copies to one tile, by one warp. Lines of what is summed over are cleared where nothing is.
  virtual void tmaLoad(Copy name, Value tile) = 0;

protected:
  StagedKernel &k;
  KernelBuilder &b;
};

/// Rows, and numbers of each: LSE, delta and position.
class RowSource : public Source {
public:
  RowSource(StagedKernel &kernel, RowsOp rows) : Source(kernel), rows(b, kernel.form, rows) {}

  bool isLoadedByTma() override { return k.schedule.loadsQueriesByTma(); }
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) override;
  void tmaLoad(Copy name, Value tile) override;

private:
  /// Rows that kernels of gradients read lie densely. A launch says how far apart those of an attention do.
  bool isDense() { return k.gradient != nullptr; }

  RowsPart rows;
};

/// A tile of tokens, if it is of one region.
class StoredTokens {
public:
  /// `first`: the tile's first token.
  StoredTokens(StagedKernel &kernel, UpdateOp update, Value first);

  /// Whether a table says where tokens lie.
  bool hasTable() const { return store.table().has_value(); }
  /// Where each of the tile's tokens lies, for a gather by warps of this scope.
  Value lookUp(tile::Scope copiers);
  /// `slots` were looked up; null where no table says them.
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers, Value slots);
  /// Where this lane's box of the tile from this token on begins, of keys and values alike.
  Value lookUpBoxes(Value from);
  void tmaLoad(Copy name, Value tile, Value slot);
  /// How many tokens there are from the first on.
  Value left() { return b.sub(tokens.getEnd(), first); }

  Value first;

private:
  /// What a gather reads, by target.
  struct Sources {
    SmallVector<Value> buffers, origins, pitches;
    SmallVector<int64_t> strides, features;
  };
  void addCodes(bool keys, Sources &from);
  void addMeta(bool keys, Sources &from);
  /// Slot of a token, the same for keys and values, by which lines are found.
  Value slotOf(Value token, bool startsPage = false);
  /// Which of the store's heads is read.
  Value place() { return placeOf(b, rows, tokens); }
  /// Lines of the boxes in which keys or values come.
  int64_t boxLines(Copy name);
  std::string tensor(StringRef part) { return tensorOf(tokens.getKv(), part); }
  std::string sizeOf(rt::StoreSize size) { return tensor(rt::sizeName(size)); }

  StagedKernel &k;
  KernelBuilder &b;
  UpdateOp update;
  TokensOp tokens;
  RowsPart rows; ///< for which they are copied
  rt::Store store;
};

/// A tile of tokens that is of one of several regions: one of these updates is made.
class TokenSource : public Source {
public:
  TokenSource(StagedKernel &kernel, ArrayRef<UpdateOp> updates);

  bool isLoadedByTma() override { return k.schedule.loadsTokensByTma(); }
  void locate(tile::Scope copiers) override;
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) override;
  void tmaLoad(Copy name, Value tile) override;

private:
  /// What `body` gives for the region that the tile is of, from this number on.
  SmallVector<Value> inRegion(TypeRange types, function_ref<SmallVector<Value>(StoredTokens &)> body,
                              size_t number = 0);

  SmallVector<StoredTokens> regions;
  SmallVector<Value> isRegion; ///< whether the tile is of the region, for all but the last
  Value where;                 ///< what was located; null where no table says it
};

/// Reads what is known of each row that a warp holds: its position and query head, of finished rows LSE and
/// delta, and the scales that all keys or values of its task share. In registers they are copies of the rows.
void stageNumbers(StagedKernel &kernel, RowsOp rows);

} // namespace mlir::attn

#endif

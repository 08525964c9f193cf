//===- Source.h - Rows and tokens that are copied ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries, keys and values come to shared memory in two ways. A *gather*
// computes an address for every 16 bytes, in many threads: it takes every
// store. A *TMA load* tells the copy engine which box of a tensor it wants, in
// one thread: the lines of a box must lie in consecutive slots, as they do in
// dense and packed stores and inside a page.
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

  /// Whether the schedule loads boxes by TMA, in warps that only copy.
  virtual bool isLoadedByTma() = 0;
  /// Computes the slots of lines or boxes, before copies by warps of this scope.
  virtual void locate(tile::Scope) {}
  /// Gathers to the tiles of these names at once.
  virtual void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) = 0;
  /// Loads one tile by TMA, by one warp. If a sum goes over lines, those past the last are cleared.
  virtual void tmaLoad(Copy name, Value tile) = 0;

protected:
  StagedKernel &k;
  KernelBuilder &b;
};

/// The source of rows, and of the numbers of each row: LSE, delta and position.
class RowSource : public Source {
public:
  RowSource(StagedKernel &kernel, RowsOp rows) : Source(kernel), rows(b, kernel.form, rows) {}

  bool isLoadedByTma() override { return k.schedule.loadsQueriesByTma(); }
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) override;
  void tmaLoad(Copy name, Value tile) override;

private:
  /// Whether rows are dense: those that kernels of gradients read are. A launch gives the strides of an
  /// attention's rows.
  bool isDense() { return k.gradient != nullptr; }

  RowsPart rows;
};

/// The tokens of a tile, if the tile belongs to one region.
class StoredTokens {
public:
  /// `first`: the first token of the copies.
  StoredTokens(StagedKernel &kernel, UpdateOp update, Value first);

  /// Whether a table gives the slots of tokens.
  bool hasTable() const { return store.table().has_value(); }
  bool isPaged() const { return store.isPaged(); }
  /// Whether values are a part of the keys.
  bool isLatent() const { return store.isLatent(); }
  /// Computes the slot of each of the tile's tokens from `from` on, for a gather by warps of this scope.
  Value lookUp(tile::Scope copiers, Value from);
  /// Gathers tokens. `slots` is the result of lookUp; null if no table gives slots.
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers, Value slots);
  /// Loads neighbouring features of the tile's tokens to the registers of the warps that copy, from number
  /// `feature` on, as many as `tile` has. `slots` is the result of lookUp.
  SmallVector<Value> fetchLines(int64_t feature, tile::SharedType tile, Value slots);
  /// The slot at which this lane's box of the tile from token `from` on begins, for keys and values alike.
  Value lookUpBoxes(Value from);
  void tmaLoad(Copy name, Value tile, Value slot);
  /// The number of tokens from the first on.
  Value left() { return b.sub(tokens.getEnd(), first); }

  Value first;

private:
  /// The sources of a gather, one for each target.
  struct Sources {
    SmallVector<Value> buffers, origins, pitches;
    SmallVector<int64_t> strides, features;
  };
  void addCodes(bool keys, Sources &from);
  void addMeta(bool keys, Sources &from);
  void addPart(int64_t byte, int64_t features, Sources &from);
  /// The slot of a token, for keys and values alike; lines are found by it.
  Value slotOf(Value token, bool startsPage = false);
  /// The token, or the first that a row sees: tables may name pages of others for tokens in front, which are
  /// masked. Boxes have `lines` lines.
  Value knownToken(Value token, int64_t lines = 1);
  /// The index of the head within the store.
  Value place() { return placeOf(b, rows, tokens); }
  Value slotOfHalf(Value slot, int64_t lines);
  /// The lines of the boxes of keys or values.
  int64_t boxLines(Copy name);
  std::string tensor(StringRef part) { return tensorOf(tokens.getKv(), part); }
  std::string sizeOf(rt::StoreSize size) { return tensor(rt::sizeName(size)); }

  StagedKernel &k;
  KernelBuilder &b;
  UpdateOp update;
  TokensOp tokens;
  RowsPart rows; ///< the rows that read these tokens
  rt::Store store;
};

/// The source of a tile of tokens that belongs to one of several regions: only one of these updates runs.
class TokenSource : public Source {
public:
  /// Copies of the tile's tokens from number `behind` on.
  TokenSource(StagedKernel &kernel, ArrayRef<UpdateOp> updates, int64_t behind = 0);

  bool isLoadedByTma() override { return k.schedule.loadsTokensByTma(); }
  void locate(tile::Scope copiers) override;
  void gather(ArrayRef<Copy> names, ValueRange tiles, tile::Scope copiers) override;
  void tmaLoad(Copy name, Value tile) override;
  /// Loads features of the tile's tokens, which belong to one region, to registers.
  SmallVector<Value> fetchLines(int64_t feature, tile::SharedType tile) {
    return regions.front().fetchLines(feature, tile, where);
  }

private:
  Value fromHere(Value token) { return behind > 0 ? b.add(token, b.i32(behind)) : token; }
  /// The values of `body` for the region that the tile belongs to, tested from `number` on.
  SmallVector<Value> inRegion(TypeRange types, function_ref<SmallVector<Value>(StoredTokens &)> body,
                              size_t number = 0);

  int64_t behind;
  Value first; ///< the tile's first token
  SmallVector<StoredTokens> regions;
  SmallVector<Value> isRegion; ///< whether the tile belongs to the region, for all regions but the last
  Value where;                 ///< the located slots; null if no table gives them
};

/// Reads the numbers of each row that a warp holds: its position and query head, the LSE and delta of
/// finished rows, and the scales that all keys or values of its task share. In registers they are copies of
/// the rows.
void stageNumbers(StagedKernel &kernel, RowsOp rows);

} // namespace mlir::attn

#endif

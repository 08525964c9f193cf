//===- Store.h - Where the tokens of a KV operand lie -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// This file alone defines what a store is: its tensors with their names and shapes,
// the address of a token, what a TMA load can copy in one piece, and the bytes of a
// token. Compiler, reference, planner, session and the makers of test tensors ask it.
//
// The address of a token is written once, over an algebra of integers: kernels evaluate
// it by emitting arithmetic, a CPU by computing. An algebra has
//
//
//   Value            a number of 32 bits (wide: 64)
//   number(n)        a constant
//   add, mul         of two values
//   div, rem         by a constant
//   wide(x)          x in 64 bits
//   size(StoreSize)  a run-time size of the operand
//   read(StoreTable, index)   an entry of one of its tables
//   place()          the index of the store's head that is meant
//   outerSlots(page)   slots from a page to the next, if a launch gives strides
//   unifiedSlots(store)   slots from a unified page to the next, if its tokens are no power of two
//   pagedSlot(row, token, page, apart, start)   pagedSlotOf with its table: kernels have an operation for it
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_STORE_H
#define ATTN_RT_TENSOR_STORE_H

#include "attn_rt/support/Arithmetic.h"
#include "attn_rt/tensor/Format.h"

#include <bit>

namespace attn::rt {

/// A unified store is a paged one whose pages belong to no head: quantized values and metadata of keys and
/// values lie side by side in `[pages, bytes]`, and any list of tokens of any head may take any page.
enum class StoreKind : uint8_t { Dense, Packed, Paged, Unified };
/// "dense", "packed", "paged", "unified", and the words in the order of the enumeration.
std::string_view storeName(StoreKind kind);
inline constexpr std::string_view storeWords[] = {"dense", "packed", "paged", "unified"};

/// Sizes that are known once the tensors are. The last three follow from strides (Strides.h): slots from one
/// page or instance to the next, slots from the first to the end of the last, and bytes from one unified page
/// to the next.
enum class StoreSize : uint8_t { Instances, Tokens, Pages, MaxPages, Heads, OuterSlots, Slots, PageBytes };
/// The tables that give the addresses of tokens.
enum class StoreTable : uint8_t { Start, BlockTable };
/// The kernels' names of sizes and tables, after the operand's name and a point: "max_pages", "block_table".
std::string_view sizeName(StoreSize size);
std::string_view tableName(StoreTable table);
/// The kernels' name of the stride of a tensor's axis, in bytes: "q.stride0".
std::string strideName(std::string_view tensor, size_t axis);

/// A dimension of a tensor: a number, or a run-time size plus a number.
struct StoreDim {
  std::optional<StoreSize> size;
  int64_t value = 0;
};

/// A tensor of an operand `kv`, called `kv.<name>`.
struct StoreTensor {
  std::string name;
  DType dtype = DType::I32;
  std::vector<StoreDim> dims;
  /// Quantized values of keys or values; the scales of a tensor or of its heads, finite numbers above 0; or
  /// metadata of each line of quantized values.
  enum class Content : uint8_t { Codes, Scales, Lines };
  Content content = Content::Codes;
};

/// The keys or the values of a store.
struct StorePart {
  char letter;
  int64_t dim = 0;
  Format format = {};
};

struct Store {
  StoreKind kind = StoreKind::Dense;
  int64_t page = 0; ///< tokens of a page; 0 unless paged
  bool ragged =
      false;         ///< each head has lengths and pages of its own, as those of a unified store always have
  int64_t heads = 0; ///< of each slot; 0: as many as its head class has, StoreSize::Heads
  StorePart keys{'k'}, values{'v'}; ///< of one letter if a value is the first features of its key

  /// The format of values that are the first features of their token's key, in manifests.
  static constexpr std::string_view partOfKey = "key";
  /// Whether a value is the first features of its token's key, stored once.
  bool isLatent() const { return values.letter == keys.letter; }
  bool isUnified() const { return kind == StoreKind::Unified; }
  bool isPaged() const { return kind == StoreKind::Paged || isUnified(); }
  bool isOfClass() const { return heads == 0; }
  /// Whether a launch may give strides of tokens. Quantized values with metadata by line lie densely, as the
  /// metadata does, and so do the tokens of a unified page.
  bool isStrided() const { return !isUnified() && !keys.format.hasLines() && !values.format.hasLines(); }
  /// Whether heads come before tokens in a page, [pages, heads, page, ...], for quantized values and metadata
  /// alike: a head then reads one piece of memory, however short a token's line is. Otherwise a slot has all
  /// heads of a token.
  bool hasHeadsFirst() const { return kind == StoreKind::Paged && !isStrided(); }
  /// Lines from a head to the next, if the tensor lies densely; 0 if a slot has one head.
  int64_t headPitch() const { return isUnified() ? 0 : hasHeadsFirst() ? page : 1; }
  /// Whether the tokens of a page are a power of two: shifts and masks then find its tokens.
  bool hasRoundPages() const { return std::has_single_bit(static_cast<uint64_t>(page)); }
  /// Whether any list of slots could replace its table: pages hold one token each.
  bool hasSingleTokens() const { return isPaged() && page == 1; }
  const StorePart &part(bool ofKeys) const { return ofKeys ? keys : values; }
  /// The store's name in types and messages: "dense", "paged<16>".
  std::string text() const;
  /// Whether a page may hold this many tokens; and the page sizes that are expected, for messages.
  static bool isPageSize(int64_t tokens) {
    return tokens >= 1 && tokens <= mostPageTokens && (tokens <= fewPageTokens || tokens % pageStep == 0);
  }
  static constexpr std::string_view pageSizes = "1 to 8 or a multiple of 16 up to 2048";
  /// The legal page sizes next to one that is not legal, for messages: "16 or 32".
  static std::string nearestPageSizes(int64_t tokens);
  static constexpr int64_t fewPageTokens = 8, pageStep = 16, mostPageTokens = 2048;

  // Tensors.
  /// The name of the tensor of quantized keys or values: "k_pages" if paged, else "k".
  std::string codesName(const StorePart &part) const {
    return std::string(1, part.letter) + (isPaged() ? "_pages" : "");
  }
  /// The name of the tensor of scales, or of scales and zero points.
  static std::string metaName(const StorePart &part) {
    return std::string(1, part.letter) + (part.format.isInteger() ? "_meta" : "_scales");
  }
  /// The name of the tensor of scales that a head or all heads share.
  static std::string sharedName(const StorePart &part) {
    return part.format.hasLines() ? std::string(1, part.letter) + "_tensor_scale" : metaName(part);
  }
  /// The dimensions whose product is the number of slots.
  std::vector<StoreDim> slotDims() const;
  /// The dimensions of slots and heads, in the order of memory: those before a line of quantized values or
  /// metadata.
  std::vector<StoreDim> lineDims() const;
  /// The axes of the slots, and of the heads of a slot, in strided quantized values.
  size_t slotAxis() const { return page == 1 ? 0 : slotDims().size() - 1; }
  size_t headAxis() const { return slotDims().size(); }
  /// The tensors of data that the user owns: quantized keys and values, and the metadata of formats that have
  /// any.
  std::vector<StoreTensor> data() const;
  /// The parts that have tensors of their own.
  std::vector<const StorePart *> parts() const;
  /// The table that gives the addresses of tokens, if the store has one.
  std::optional<StoreTable> table() const;
  /// The tensors that give the number and the addresses of tokens: lengths, pos0, rows, and the table.
  std::vector<StoreTensor> tables() const;
  /// Run-time sizes of its tensors.
  std::vector<StoreSize> sizes() const;

  /// Bytes of a token of one head: quantized values and their line of metadata.
  int64_t tokenBytes() const { return tokenBytes(keys) + (isLatent() ? 0 : tokenBytes(values)); }
  static int64_t tokenBytes(const StorePart &part) {
    const Format &format = part.format;
    return format.rowBytes(part.dim) + (format.hasLines() ? format.metaBytes(part.dim) : 0);
  }
  /// The offsets of the parts of a unified page: quantized keys and values, then their metadata, each at a
  /// multiple of 16 bytes. Bytes after `bytes` are the owner's, for example scores and positions of tokens.
  struct PageParts {
    int64_t keys, values, keyMeta, valueMeta, bytes;
  };
  PageParts pageParts() const;

  /// Slots of a memory of these sizes.
  int64_t slots(int64_t instances, int64_t tokens, int64_t pages) const {
    return isPaged() ? pages * page : kind == StoreKind::Dense ? instances * tokens : tokens;
  }

  // Entries of a block table, one for each page, over any numbers (Arithmetic.h).
  /// Entries of the block table for this many tokens, the first of which begins a page; 0 without a block
  /// table.
  template <typename N> N entriesOf(N tokens) const {
    if (!isPaged())
      return constantLike(tokens, 0);
    if (hasRoundPages())
      return entryOf(tokens - 1) + 1;
    if constexpr (std::integral<N>)
      return tokens > 0 ? entryOf(tokens - 1) + 1 : 0;
    else
      return ceilDiv(tokens, static_cast<int32_t>(page));
  }
  /// The entry of a token, in its instance. (Planners compute it for every segment: a shift is quicker than a
  /// division.)
  template <typename N> N entryOf(N token) const {
    return hasRoundPages() ? token >> std::countr_zero(static_cast<uint64_t>(page))
                           : token / static_cast<int32_t>(page);
  }
  /// Tokens that this many entries can hold.
  template <typename N> auto tokensOf(N entries) const { return entries * page; }

  // TMA copies.
  /// Lines of the boxes in which a tile of `tokens` can be loaded by TMA; 0 if its tokens are not contiguous,
  /// or their strides are unknown before the kernel runs.
  int64_t boxLines(int64_t tokens) const;
  /// Whether pages are then loaded in parts: each in several boxes.
  bool tearsPages(int64_t tokens) const {
    return isPaged() && boxLines(tokens) != 0 && boxLines(tokens) < page;
  }
  /// Boxes of this many lines do not cross pages if tiles begin at multiples of this.
  int64_t boxAlignment(int64_t lines) const { return isPaged() ? lines : 1; }
  /// Slots along the axis of a box, as a number times run-time sizes.
  struct BoxAxis {
    int64_t extent;
    std::vector<StoreSize> times;
  };
  BoxAxis boxAxis() const;

  // Addresses.
  /// The slot of a token, the same for keys and values; with `pageStart`, the slot of its page's first token.
  template <typename Algebra>
  typename Algebra::Value slotOf(Algebra &a, typename Algebra::Value instance, typename Algebra::Value token,
                                 bool pageStart = false) const {
    switch (kind) {
    case StoreKind::Dense:
      return a.add(a.mul(instance, a.size(isStrided() ? StoreSize::OuterSlots : StoreSize::Tokens)), token);
    case StoreKind::Packed:
      return a.add(a.read(StoreTable::Start, a.wide(instance)), token);
    case StoreKind::Paged:
    case StoreKind::Unified:
      break;
    }
    std::optional<typename Algebra::Value> apart;
    if (isStrided() && page > 1) // a page of one token is a slot
      apart = a.outerSlots(page);
    else if (isUnified() && !hasRoundPages())
      apart = a.unifiedSlots(*this);
    return a.pagedSlot(tableRowOf(a, instance), token, page, apart, pageStart);
  }
  /// The slot of a token in slots of lines: if a page has head after head, it has as many slots as lines, so
  /// that one multiplication finds a head's line of a token. Lines of one slot are `headPitch` lines apart.
  template <typename Algebra>
  typename Algebra::Value lineSlotOf(Algebra &a, typename Algebra::Value instance,
                                     typename Algebra::Value token, bool pageStart = false) const {
    if (headPitch() <= 1)
      return slotOf(a, instance, token, pageStart);
    const auto lines = a.mul(headCount(a), a.number(page));
    return a.pagedSlot(tableRowOf(a, instance), token, page, lines, pageStart);
  }
  /// The line of one head of a slot, counted in lines from the start of the tensor, which lies densely. For
  /// unified pages, bytes between pages do not count.
  template <typename Algebra> typename Algebra::Value lineOf(Algebra &a, typename Algebra::Value slot) const {
    if (isUnified())
      return slot;
    const auto all = headCount(a);
    if (!hasHeadsFirst())
      return a.add(a.mul(slot, all), a.place());
    const auto first = a.mul(a.add(a.mul(a.div(slot, page), all), a.place()), a.number(page));
    return a.add(first, a.rem(slot, page));
  }
  /// Slots from a unified page to the next in kernels that gather: a power of two, so that each line finds
  /// its page and its place there by a shift and a mask.
  int64_t gatheredSlots() const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(page))); }
  /// The index of a head's scale, among scales that each head or all heads share.
  template <typename Algebra> static typename Algebra::Value sharedOf(Algebra &a, const StorePart &part) {
    return part.format.scales == Format::Scales::Head ? a.place() : a.number(0);
  }

private:
  StoreTensor lineTensor(const StorePart &part) const;
  StoreTensor sharedTensor(const StorePart &part) const;
  template <typename Algebra> typename Algebra::Value headCount(Algebra &a) const {
    return isOfClass() ? a.size(StoreSize::Heads) : a.number(heads);
  }
  /// The row of the block table that lists the pages of an instance, or of one of its heads.
  template <typename Algebra>
  typename Algebra::Value tableRowOf(Algebra &a, typename Algebra::Value instance) const {
    if (!ragged)
      return instance;
    const auto all = headCount(a);
    return a.add(a.mul(instance, all), a.place());
  }
};

/// The slot of a token in one row of a block table. Rows have `columns` entries, and pages begin `apart`
/// slots apart; with `start`, the first slot of the token's page.
template <typename Algebra>
typename Algebra::Value pagedSlotOf(Algebra &a, typename Algebra::Value row, typename Algebra::Value columns,
                                    typename Algebra::Value token, int64_t page,
                                    typename Algebra::Value apart, bool start) {
  const auto begin = a.wide(row);
  const auto entries = a.mul(begin, a.wide(columns));
  const auto index = a.add(entries, a.wide(a.div(token, page)));
  const auto first = a.mul(a.read(StoreTable::BlockTable, index), apart);
  return start ? first : a.add(first, a.rem(token, page));
}

/// The algebra of a CPU, over tables in memory and tensors that lie densely.
struct StoreNumbers {
  using Value = int64_t;
  std::span<const int32_t> table; ///< the store's
  int64_t tokens = 0, maxPages = 0, heads = 0, head = 0;

  static Value number(int64_t n) { return n; }
  static Value add(Value x, Value y) { return x + y; }
  static Value mul(Value x, Value y) { return x * y; }
  static Value div(Value x, int64_t y) { return x / y; }
  static Value rem(Value x, int64_t y) { return x % y; }
  static Value wide(Value x) { return x; }
  Value size(StoreSize size) const {
    return size == StoreSize::MaxPages ? maxPages : size == StoreSize::Heads ? heads : tokens;
  }
  Value read(StoreTable, Value index) const { return table[static_cast<size_t>(index)]; }
  Value place() const { return head; }
  static Value outerSlots(int64_t page) { return page; }
  static Value unifiedSlots(const Store &store) { return store.page; }
  Value pagedSlot(Value row, Value token, int64_t page, std::optional<Value> apart, bool start) const {
    return pagedSlotOf(*this, row, maxPages, token, page, apart.value_or(page), start);
  }
};

} // namespace attn::rt

#endif

//===- PlanRecords.h - What PlanRecords.def becomes in C++ ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A record is a template over the type of its fields: with i32 it is what the planner
// fills and the device reads, with the compiler's values it is what a kernel has read.
// Both know fields by name; no code knows their order:
//
//     PlanTask task{.packedBegin = 0, .packedCount = 16};           // = PlanTaskOf<int32_t>
//     auto task = recordOf<rt::PlanTaskOf<Value>>(op.getResults()); // PlanTask::usedWords of them
//     use(task.packedBegin);
//
// On a device, records are `words` words apart: a power of two, and at least eight,
// so that one load of a warp reads all of a record.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_ARTIFACT_PLANRECORDS_H
#define ATTN_RT_ARTIFACT_PLANRECORDS_H

#include "attn_rt/support/Arithmetic.h"
#include "attn_rt/tensor/Tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <type_traits>

namespace attn::rt {

/// Words from the begin of a record with `usedWords` words of fields to the next record.
constexpr size_t planRecordWords(size_t usedWords) { return std::max<size_t>(8, std::bit_ceil(usedWords)); }

#define ATTN_PLAN_RECORD(Record, meaning)                                                                    \
  struct Record##Layout {                                                                                    \
    static constexpr size_t usedWords = 0
#define ATTN_PLAN_FIELD(name, meaning) +1
#define ATTN_PLAN_NESTED(name, Record, meaning) +Record##Layout::words
#define ATTN_PLAN_RECORD_END(Record)                                                                         \
  ;                                                                                                          \
  static constexpr size_t words = planRecordWords(usedWords);                                                \
  static_assert(usedWords <= 32, #Record ": a warp reads a record with one load");                           \
  }                                                                                                          \
  ;
#include "attn_rt/artifact/PlanRecords.def"

template <size_t words> struct PlanPadding {
  std::array<int32_t, words> unused = {};
};
template <> struct PlanPadding<0> {};
/// The padding between a record and the next, which only a device needs.
template <typename T, typename Layout>
using PlanPaddingOf = PlanPadding<std::is_same_v<T, int32_t> ? Layout::words - Layout::usedWords : 0>;

#define ATTN_PLAN_RECORD(Record, meaning)                                                                    \
  template <typename T> struct Record##Of {                                                                  \
    using Field = T;                                                                                         \
    using OnDevice = Record##Of<int32_t>;                                                                    \
    using Layout = Record##Layout;                                                                           \
    static constexpr size_t usedWords = Layout::usedWords, words = Layout::words;
#define ATTN_PLAN_FIELD(name, meaning) T name = {};
#define ATTN_PLAN_NESTED(name, Record, meaning) Record##Of<T> name = {};
#define ATTN_PLAN_RECORD_END(Record)                                                                         \
  [[no_unique_address]] PlanPaddingOf<T, Layout> padding = {};                                               \
  }                                                                                                          \
  ;                                                                                                          \
  using Record = Record##Of<int32_t>;                                                                        \
  static_assert(sizeof(Record) == Record::words * sizeof(int32_t));
#include "attn_rt/artifact/PlanRecords.def"

/// Calls `visit(name, field or nested record)` for all members of a record in their order.
#define ATTN_PLAN_RECORD(Record, meaning)                                                                    \
  template <typename Given, typename Visit>                                                                  \
    requires std::is_same_v<typename Given::Layout, Record##Layout>                                          \
  constexpr void visitMembers(Given &record, Visit &&visit) {
#define ATTN_PLAN_FIELD(name, meaning) visit(#name, record.name);
#define ATTN_PLAN_NESTED(name, Record, meaning) visit(#name, record.name);
#define ATTN_PLAN_RECORD_END(Record) }
#include "attn_rt/artifact/PlanRecords.def"

/// Makes a record of its words, as a kernel reads them: the first `usedWords`.
template <typename Record, typename Words> Record recordOf(const Words &words, size_t first = 0) {
  using Field = typename Record::Field;
  Record record;
  visitMembers(record, [&]<typename Member>(const char *, Member &member) {
    if constexpr (std::is_same_v<Member, Field>) {
      member = words[first++];
    } else {
      member = recordOf<Member>(words, first);
      first += Member::words;
    }
  });
  return record;
}

/// The fields, in order, of a record without nested records.
template <typename Record>
std::array<typename Record::Field, Record::usedWords> fieldsOf(const Record &record) {
  std::array<typename Record::Field, Record::usedWords> fields;
  size_t next = 0;
  visitMembers(record, [&](const char *, const typename Record::Field &field) { fields[next++] = field; });
  return fields;
}

/// Bit of PlanTask::flags: the task includes the sink logit.
inline constexpr int32_t taskHasSink = 1;
/// Bit of PlanTask::flags: in each segment, the task's query row r, counted from its first row, sees no token
/// from fullEnd + r on. A causal mask sets it if each row is one position after the row before.
inline constexpr int32_t taskRowsFollow = 2;

/// Bit of PlanTask::flags: the task has one row, and stores the scores of its tokens.
inline constexpr int32_t taskStoresScores = 4;

/// Bit of PlanTask::flags: the task's partial rows hold the total of its parts so far; its results are
/// written directly.
inline constexpr int32_t taskFolds = 8;

/// The tokens of a part under a numerics contract, except for those at either end of an instance.
inline constexpr int32_t rowSplitTokens = 4096;

/// Tokens of a PlanScoreTask, except for an instance's last.
inline constexpr int32_t scoreTaskTokens = 1024;

/// Tokens of a PlanTokenSum, except for a task's last.
inline constexpr int32_t tokenSumTokens = 16;

/// The bits of PlanTask::flags from this one on hold the number of the task's segments of the first operand,
/// if its results are also returned alone (Manifest::returnsFirst). These segments come first.
inline constexpr int32_t taskFirstShift = 8;

/// A fault that the planning kernel finds in its tables. A plan with a fault is empty: nothing is written
/// under it.
enum class PlanFault : int32_t {
  None,
  RowsUnsorted,
  LengthOutside,
  CapacityExceeded,
  SeveralRows,
  PageOutside
};

/// The dimensions that the planning kernel is given besides. A frequent divisor is followed by a factor and a
/// shift, by which quotientBy divides.
#define ATTN_PLAN_DIVISOR(DIM, Id, name)                                                                     \
  DIM(Id, name) DIM(Id##Factor, name ".factor") DIM(Id##Shift, name ".shift")
#define ATTN_PLAN_DIMS(DIM)                                                                                  \
  ATTN_PLAN_DIVISOR(DIM, Blocks, "plan.blocks")      /* of the planned launch */                             \
  ATTN_PLAN_DIVISOR(DIM, Rows, "plan.rows")          /* packed rows of a tile */                             \
  ATTN_PLAN_DIVISOR(DIM, Keys, "plan.keys")          /* keys of a tile */                                    \
  ATTN_PLAN_DIVISOR(DIM, KeyAlign, "plan.key_align") /* KernelInfo::keyAlign */                              \
  ATTN_PLAN_DIVISOR(DIM, Lockstep, "plan.lockstep")  /* heads that blocks walk in lockstep, or 1 */          \
  ATTN_PLAN_DIVISOR(DIM, Chunk, "plan.chunk")        /* tokens between fixed cuts, else 1 */                 \
  DIM(IsFixed, "plan.is_fixed")                      /* whether cuts are fixed: PlanOptions::fixedSplit */   \
  DIM(Fixed, "plan.fixed")                           /* cost of a task, */                                   \
  DIM(ShareTiles, "plan.share_tiles")                /* and the shortest share */                            \
  DIM(WorkTiles, "plan.work_tiles")                  /* capacities: tiles of rows, */                        \
  DIM(Parts, "plan.parts")                           /* parts of those, */                                   \
  DIM(Partials, "plan.partials")                     /* partial rows, */                                     \
  DIM(MergeRows, "plan.rows_to_merge")               /* and rows to merge */
enum class PlanDim : uint8_t {
#define ATTN_PLAN_DIM(Id, name) Id,
  ATTN_PLAN_DIMS(ATTN_PLAN_DIM)
#undef ATTN_PLAN_DIM
};
inline constexpr std::string_view planDimNames[] = {
#define ATTN_PLAN_DIM(Id, name) name,
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): names of a divisor are put together of two.
    ATTN_PLAN_DIMS(ATTN_PLAN_DIM)
#undef ATTN_PLAN_DIM
};
/// A divisor of 31 bits: x / number is x * factor >> shift, for 0 <= x < 2^31.
struct PlanDivisor {
  int32_t number, factor, shift;

  static constexpr PlanDivisor of(int32_t number) {
    const int shift = 31 + std::bit_width(static_cast<uint32_t>(number - 1));
    return {number, static_cast<int32_t>((int64_t{1} << shift) / number + 1), shift};
  }
};
template <typename N> auto quotientBy(N x, N factor, N shift) { return shiftedProduct(x, factor, shift); }

constexpr std::string_view planDimName(PlanDim dim) { return planDimNames[static_cast<size_t>(dim)]; }

/// The arrays of a plan and its partial arrays.
enum class PlanArray : uint8_t {
#define ATTN_PLAN_ARRAY(Id, ...) Id,
#define ATTN_PLAN_PARTIAL(Id, ...) Id,
#include "attn_rt/artifact/PlanRecords.def"
};

inline constexpr std::string_view planArrayNames[] = {
#define ATTN_PLAN_ARRAY(Id, name, ...) name,
#define ATTN_PLAN_PARTIAL(Id, name, ...) name,
#include "attn_rt/artifact/PlanRecords.def"
};
inline constexpr size_t planArrayCount = std::size(planArrayNames);

/// The kernels' name of an array's buffer.
constexpr std::string_view planArrayName(PlanArray array) {
  return planArrayNames[static_cast<size_t>(array)];
}
std::optional<PlanArray> findPlanArray(std::string_view name);
/// The partial arrays, which a plan's launches hand to each other.
inline constexpr PlanArray planPartials[] = {
#define ATTN_PLAN_PARTIAL(Id, ...) PlanArray::Id,
#include "attn_rt/artifact/PlanRecords.def"
};

/// The partial arrays that hold the states of parts.
inline constexpr PlanArray planStates[] = {PlanArray::PartialO, PlanArray::PartialLse};

/// The array of records of this kind, whatever the type of their fields.
template <typename Record> constexpr PlanArray planArrayOf() {
#define ATTN_PLAN_ARRAY(Id, name, member, Element, ...)                                                      \
  if constexpr (std::is_same_v<Element, typename Record::OnDevice>)                                          \
    return PlanArray::Id;
#include "attn_rt/artifact/PlanRecords.def"
}

/// The layout of an array's elements, as a kernel sees it.
struct PlanArrayLayout {
  std::vector<std::string> fields; ///< of records, nested ones as "task.packedBegin"; empty: single words
  size_t words = 1;                ///< from an element to the next
  DType dtype = DType::I32;        ///< of a word
};
const PlanArrayLayout &planArrayLayout(PlanArray array);

} // namespace attn::rt

#endif

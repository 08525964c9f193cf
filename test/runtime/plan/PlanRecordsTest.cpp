//===- PlanRecordsTest.cpp - Structs and their description agree ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/artifact/PlanRecords.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

using namespace attn::rt;

namespace {

/// Stands for a compiler's value.
struct Name {
  std::string text;
  bool operator==(const Name &) const = default;
};

// Kernels find the words that the planner writes under the same names.
TEST(PlanRecords, WordsAreFieldsInOrder) {
  std::array<int32_t, PlanStart::words> words;
  std::iota(words.begin(), words.end(), 0);
  PlanStart inMemory;
  static_assert(sizeof inMemory == sizeof words && std::is_trivially_copyable_v<PlanStart>);
  std::memcpy(&inMemory, words.data(), sizeof words);
  const auto read = recordOf<PlanStart>(words);
  EXPECT_EQ(read.task.packedBegin, 0);
  EXPECT_EQ(read.task.headClass, 7);
  EXPECT_EQ(read.segment.operand, static_cast<int32_t>(PlanTask::words));
  EXPECT_EQ(read.tasksBegin, static_cast<int32_t>(PlanTask::words + PlanSegment::words));
  EXPECT_EQ(read.tasksEnd, static_cast<int32_t>(PlanStart::usedWords) - 1);
  EXPECT_EQ(std::memcmp(&inMemory, &read, PlanStart::usedWords * 4), 0);
  EXPECT_EQ(fieldsOf(read.task), (std::array<int32_t, 8>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(fieldsOf(read.segment)[0], read.segment.operand);
}

TEST(PlanRecords, FieldsOfAnyType) {
  std::vector<Name> names;
  for (const std::string &field : planArrayLayout(PlanArray::Starts).fields)
    names.push_back({field});
  ASSERT_EQ(names.size(), PlanStartOf<Name>::usedWords);
  const auto start = recordOf<PlanStartOf<Name>>(names);
  EXPECT_EQ(start.task.segmentEnd.text, "task.segmentEnd");
  EXPECT_EQ(start.segment.kvBegin.text, "segment.kvBegin");
  EXPECT_EQ(start.tasksEnd.text, "tasksEnd");
  EXPECT_EQ(planArrayOf<PlanStartOf<Name>>(), PlanArray::Starts);
  EXPECT_EQ(planArrayOf<PlanTask>(), PlanArray::Tasks);
}

TEST(PlanRecords, Layouts) {
  const PlanArrayLayout &tasks = planArrayLayout(PlanArray::Tasks);
  EXPECT_EQ(tasks.fields, (std::vector<std::string>{"packedBegin", "packedCount", "ordinal", "segmentBegin",
                                                    "segmentEnd", "partial", "flags", "headClass"}));
  EXPECT_EQ(tasks.words * 4, sizeof(PlanTask));
  EXPECT_EQ(planArrayLayout(PlanArray::Segments).words * 4, sizeof(PlanSegment));
  EXPECT_EQ(planArrayLayout(PlanArray::Starts).words, 32u); // a cache line
  EXPECT_TRUE(planArrayLayout(PlanArray::MergeRows).fields.empty());
  EXPECT_EQ(planArrayLayout(PlanArray::Bits).dtype, DType::I32);
  EXPECT_EQ(planArrayLayout(PlanArray::PartialLse).dtype, DType::F32);
  EXPECT_EQ(planRecordWords(1), 8u);
  EXPECT_EQ(planRecordWords(9), 16u);
}

TEST(PlanRecords, NamesAreFound) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < planArrayCount; ++i) {
    const auto array = static_cast<PlanArray>(i);
    EXPECT_TRUE(names.insert(planArrayName(array)).second) << planArrayName(array);
    EXPECT_EQ(findPlanArray(planArrayName(array)), array);
  }
  EXPECT_EQ(findPlanArray("plan.task"), std::nullopt);
}

} // namespace

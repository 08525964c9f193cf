//===- PlanRecords.cpp - What PlanRecords.def becomes in C++ --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/artifact/PlanRecords.h"

namespace attn::rt {

namespace {

template <typename Record> void addNames(const std::string &prefix, std::vector<std::string> &names) {
  const Record record;
  visitMembers(record, [&]<typename Member>(const char *name, const Member &) {
    if constexpr (std::is_same_v<Member, int32_t>)
      names.push_back(prefix + name);
    else
      addNames<Member>(prefix + name + ".", names);
  });
}

template <typename Element> PlanArrayLayout layoutOf() {
  PlanArrayLayout layout;
  if constexpr (std::is_class_v<Element>) {
    layout.words = Element::words;
    addNames<Element>("", layout.fields);
  } else if constexpr (std::is_floating_point_v<Element>) {
    layout.dtype = DType::F32;
  }
  return layout;
}

} // namespace

std::optional<PlanArray> findPlanArray(std::string_view name) {
  for (size_t i = 0; i < planArrayCount; ++i)
    if (planArrayNames[i] == name)
      return static_cast<PlanArray>(i);
  return std::nullopt;
}

const PlanArrayLayout &planArrayLayout(PlanArray array) {
  static const PlanArrayLayout layouts[] = {
#define ATTN_PLAN_ARRAY(Id, name, member, Element, ...) layoutOf<Element>(),
#define ATTN_PLAN_PARTIAL(Id, name, Element, ...) layoutOf<Element>(),
#include "attn_rt/artifact/PlanRecords.def"
  };
  return layouts[static_cast<size_t>(array)];
}

} // namespace attn::rt

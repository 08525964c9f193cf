//===- PlanLayout.cpp - What a kernel was compiled to read of plans -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The manifest describes every array of a plan that its kernels read, field by
// field. A runtime whose plans have another layout (PlanRecords.def) refuses it by
// the first name that differs; an array that no kernel reads may change freely.
//
//===----------------------------------------------------------------------===//
#include "artifact/ManifestJson.h"

#include <algorithm>
#include <set>

namespace attn::rt {

namespace {

bool reads(const Manifest &m, PlanArray array) {
  return std::any_of(m.kernels.begin(), m.kernels.end(), [&](const KernelInfo &kernel) {
    return std::any_of(kernel.params.begin(), kernel.params.end(), [&](const Parameter &param) {
      return param.kind == Parameter::Kind::Buffer && param.name == planArrayName(array);
    });
  });
}

void checkFields(const PlanArrayLayout &ours, const std::string &name, const Cursor &cursor) {
  const std::vector<Cursor> theirs = cursor["fields"].elements();
  for (size_t i = 0; i < theirs.size() && !cursor.failed(); ++i) {
    const std::string field = theirs[i].string();
    if (i >= ours.fields.size())
      theirs[i].fail("'" + name + "' has no field '" + field + "' in this runtime's plans");
    else if (field != ours.fields[i])
      theirs[i].expected("\"" + ours.fields[i] + "\", as in '" + name + "' of this runtime's plans");
  }
  if (theirs.size() < ours.fields.size())
    cursor["fields"].fail("'" + name + "' has a field '" + ours.fields[theirs.size()] +
                          "' in this runtime's plans, which the kernels do not know");
  if (cursor["words"].integer() != static_cast<int64_t>(ours.words))
    cursor["words"].expected(std::to_string(ours.words) + " words from a record of '" + name +
                             "' to the next");
}

} // namespace

Json planToJson(const Manifest &m) {
  Json arrays = Json::array();
  for (size_t i = 0; i < planArrayCount; ++i) {
    const auto array = static_cast<PlanArray>(i);
    if (!reads(m, array))
      continue;
    const PlanArrayLayout &layout = planArrayLayout(array);
    Json &json = arrays.emplace_back(Json{{"name", planArrayName(array)}});
    if (layout.fields.empty()) {
      json["dtype"] = dtypeName(layout.dtype);
    } else {
      json["fields"] = layout.fields;
      json["words"] = layout.words;
    }
  }
  return {{"arrays", std::move(arrays)}};
}

void checkPlanLayout(const Cursor &root) {
  for (const Cursor &entry : root["plan"]["arrays"].elements()) {
    const std::string name = entry["name"].string();
    const std::optional<PlanArray> array = findPlanArray(name);
    if (!array) {
      entry["name"].fail("this runtime's plans have no array '" + name + "'");
      continue;
    }
    const PlanArrayLayout &ours = planArrayLayout(*array);
    if (!ours.fields.empty())
      checkFields(ours, name, entry);
    else if (entry["dtype"].string() != dtypeName(ours.dtype))
      entry["dtype"].expected('"' + std::string(dtypeName(ours.dtype)) + "\", of which '" + name + "' is");
  }
}

void checkPlanArrays(const Manifest &m, const Cursor &root) {
  std::set<std::string> described;
  for (const Cursor &entry : root["plan"]["arrays"].elements())
    described.insert(entry["name"].string());
  for (size_t i = 0; i < planArrayCount; ++i)
    if (const auto array = static_cast<PlanArray>(i);
        reads(m, array) && !described.contains(std::string(planArrayName(array))))
      root["plan"]["arrays"].fail("a kernel reads '" + std::string(planArrayName(array)) +
                                  "', which is not described");
}

} // namespace attn::rt

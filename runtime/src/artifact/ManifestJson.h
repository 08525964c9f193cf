//===- ManifestJson.h - The manifest as a JSON document ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_ARTIFACT_MANIFESTJSON_H
#define ATTN_RT_ARTIFACT_MANIFESTJSON_H

#include "attn_rt/artifact/Artifact.h"
#include "support/Json.h"

namespace attn::rt {

inline constexpr std::string_view parameterWords[] = {"buffer", "dim", "end", "scale", "map"};
inline constexpr std::string_view kernelScheduleWords[] = {"mma", "wgmma"};
inline constexpr std::string_view argumentRoleWords[] = {
    "query", "kv", "sink", "tensor", "classes", "rows", "slots", "status", "pages", "gate", "output_scale"};

/// The type of a scalar parameter; addresses and maps have none.
inline std::string_view scalarType(Parameter::Kind kind) {
  switch (kind) {
  case Parameter::Kind::Dim:
  case Parameter::Kind::End:
    return "i32";
  case Parameter::Kind::Scale:
    return "f32";
  default:
    return {};
  }
}

template <typename E, size_t N> std::string word(const std::string_view (&words)[N], E value) {
  return std::string(words[static_cast<size_t>(value)]);
}

Manifest readManifest(const Cursor &root);
DType readDType(const Cursor &cursor);
std::vector<DimInfo> readDims(const Cursor &cursor);
Json dimsToJson(const std::vector<DimInfo> &dims);
Json manifestToJson(const Manifest &manifest);
/// Checks a parsed document as parseManifest does.
Result<Manifest> manifestFromJson(const Json &json);

/// Checks relations between fields; the first violation is recorded.
void checkManifest(const Manifest &manifest, const Cursor &root);

// Launches and results (Launches.cpp).
Json launchToJson(const Manifest &manifest, const LaunchInfo &launch);
LaunchInfo readLaunch(const Manifest &manifest, const Cursor &cursor);
void checkLaunches(const Manifest &manifest, const Cursor &root);
Json resultToJson(const ResultInfo &result);
ResultInfo readResult(const Cursor &cursor);
void checkResults(const Manifest &manifest, const Cursor &root);

// The arrays of a plan that kernels read (PlanLayout.cpp).
Json planToJson(const Manifest &manifest);
/// Checks that the described layout is that of this runtime's plans.
void checkPlanLayout(const Cursor &root);
/// Checks that every array that kernels read is described.
void checkPlanArrays(const Manifest &manifest, const Cursor &root);

} // namespace attn::rt

#endif

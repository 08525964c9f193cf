//===- Guard.h - What stands at the border to C -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CAPI_GUARD_H
#define ATTN_RT_CAPI_GUARD_H

#include "attn-c/Common.h"
#include "attn_rt/support/Status.h"

#include <cstring>
#include <exception>
#include <new>

namespace attn::rt::capi {

inline AttnStatus statusOf(AttnStatusKind kind, const char *message) noexcept {
  return {kind, strdup(message)};
}

inline AttnStatus statusOf(const Status &status) {
  if (status)
    return {AttnStatusOk, nullptr};
  const AttnStatusKind kinds[] = {AttnStatusInput, AttnStatusDevice, AttnStatusMemory, AttnStatusCheck};
  return statusOf(kinds[static_cast<size_t>(status.error().kind)], status.error().message.c_str());
}

/// Runs the body of a function of the API. Exceptions become a status.
template <typename Body> AttnStatus guarded(Body body) noexcept {
  try {
    return statusOf(body());
  } catch (const std::bad_alloc &) {
    return statusOf(AttnStatusMemory, "host: out of memory");
  } catch (const std::exception &error) {
    return statusOf(AttnStatusInternal, error.what());
  } catch (...) {
    return statusOf(AttnStatusInternal, "an exception without a name");
  }
}

/// Runs the body of a function that returns a value without a status. Exceptions become `otherwise`.
template <typename T, typename Body> T guardedValue(T otherwise, Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}

template <typename... Pointers> Status required(const char *names, const Pointers *...pointers) {
  if ((... && (pointers != nullptr)))
    return {};
  return inputError(std::string("expected no null pointers, got one among: ") + names);
}

} // namespace attn::rt::capi

#endif

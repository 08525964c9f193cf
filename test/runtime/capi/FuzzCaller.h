//===- FuzzCaller.h - Arguments and results of random calls -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_CAPI_FUZZCALLER_H
#define ATTN_TEST_RUNTIME_CAPI_FUZZCALLER_H

#include "FuzzWorld.h"

#include <gtest/gtest.h>
#include <limits>
#include <map>

namespace attn::rt::test {

/// The state that all calls of one thread share.
class Caller {
public:
  Caller(World &world, uint64_t seed) : world(world), rng(seed) {}
  std::map<std::string, int> succeeded; ///< calls of each kind

protected:
  //===--- Arguments ---------------------------------------------------------===//

  bool rarely() { return below(rng, 40) == 0; }
  /// A small number as a rule, and sometimes a number that breaks arithmetic.
  int64_t number(int64_t most) {
    static const int64_t odd[] = {-1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 31, 1 << 20};
    return rarely() ? odd[below(rng, std::size(odd))]
                    : static_cast<int64_t>(below(rng, static_cast<size_t>(most) + 1));
  }
  int32_t small(int64_t most) { return static_cast<int32_t>(number(most)); }
  AttnNode node() { return rarely() ? rng() : world.node(rng); }
  const char *text(std::initializer_list<const char *> texts) {
    return rarely() ? nullptr : texts.begin()[below(rng, texts.size())];
  }
  /// The destination of a result, sometimes null.
  template <typename T> T **out(T *&made) { return rarely() ? nullptr : &made; }

  //===--- Results -----------------------------------------------------------===//

  bool take(AttnStatus status) {
    const bool ok = status.kind == AttnStatusOk;
    const std::string message = status.message ? status.message : "";
    attnStatusFree(status);
    EXPECT_NE(status.kind, AttnStatusInternal) << now << ": " << message;
    EXPECT_LE(status.kind, AttnStatusInternal) << now;
    EXPECT_EQ(ok, message.empty()) << now << ": " << message;
    succeeded[now] += ok;
    return ok;
  }
  template <typename T> bool take(AttnStatus status, T *made, Pool<T> &pool) {
    const bool ok = take(status);
    EXPECT_EQ(ok, made != nullptr) << now;
    pool.add(made, rng);
    return ok;
  }
  void take(AttnStatus status, AttnBytes *made) {
    EXPECT_EQ(take(status), made != nullptr) << now;
    EXPECT_TRUE(!made || attnBytesData(made)[attnBytesSize(made)] == 0) << now;
    attnBytesDestroy(made);
  }
  void takeTables(AttnStatus status, AttnTensors *made) {
    EXPECT_EQ(take(status), made != nullptr) << now;
    for (size_t i = 0; i < attnTensorsCount(made); ++i)
      EXPECT_TRUE(attnTensorsGet(made, i).name);
    EXPECT_FALSE(attnTensorsGet(made, attnTensorsCount(made)).name);
    attnTensorsDestroy(made);
  }

  World &world;
  Rng rng;
  const char *now = "";
};

} // namespace attn::rt::test

#endif

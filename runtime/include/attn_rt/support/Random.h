//===- Random.h - Seeded numbers that never change --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The standard library's distributions differ between its implementations, and
// a seed in a bug report must mean the same data everywhere. So the generator
// (splitmix64) and the distributions are spelt out here. Each use has a stream
// of its own, named by a word, so that adding a tensor changes no other.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_RANDOM_H
#define ATTN_RT_SUPPORT_RANDOM_H

#include <cmath>
#include <cstdint>
#include <string_view>

namespace attn::rt {

class Random {
public:
  Random(uint64_t seed, std::string_view stream) : state(seed * step + 0x632be59bd9b4e019u) {
    for (char c : stream)
      state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    next();
  }

  /// The stream as it is after `count` calls of next().
  Random after(int64_t count) const {
    Random later = *this;
    later.state += static_cast<uint64_t>(count) * step;
    return later;
  }

  uint64_t next() {
    uint64_t z = (state += step);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound); the bias of the multiplication is below 2^-32 for bounds of 32 bits.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>((static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(bound)) >>
                                64);
  }

  /// Uniform in (0, 1).
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

  /// Two independent standard normal numbers (Box and Muller).
  void normalPair(double &a, double &b) {
    double radius = std::sqrt(-2 * std::log(uniform()));
    double angle = 6.283185307179586 * uniform();
    a = radius * std::cos(angle);
    b = radius * std::sin(angle);
  }

private:
  static constexpr uint64_t step = 0x9e3779b97f4a7c15u;
  uint64_t state;
};

} // namespace attn::rt

#endif

//===- Normal.cpp - Tensors of standard normal numbers --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Normal.h"
#include "attn_rt/support/Threads.h"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace attn;
using namespace attn::run;

namespace {

constexpr int64_t tableSize = 1 << 16;
/// A draw is one word of the stream, which selects this many elements.
constexpr int64_t drawn = 4;
/// With fewer elements a thread is not worth starting.
constexpr int64_t leastElements = 1 << 20;

/// Calls work(begin, end) for parts of [0, count) in parallel; an item has `elements` elements.
template <typename Work> void inParallel(int64_t count, int64_t elements, Work work) {
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  int64_t parts = std::clamp<int64_t>(count * elements / leastElements, 1, cores);
  std::atomic<int64_t> next = 0;
  rt::onThreads(static_cast<unsigned>(parts), [&] {
    for (int64_t part; (part = next++) < parts;)
      work(count * part / parts, count * (part + 1) / parts);
  });
}

template <typename Bits> void pick(Bits *out, const Bits *table, int64_t count, rt::Random &random) {
  for (int64_t i = 0; i < count; i += drawn) {
    uint64_t word = random.next();
    for (int64_t j = i; j < std::min(i + drawn, count); ++j, word >>= 16)
      out[j] = table[word & 0xffff];
  }
}

} // namespace

NormalSource::NormalSource(rt::DType dtype, double factor) : size(rt::dtypeSize(dtype)) {
  rt::Tensor values(dtype, {tableSize});
  rt::Random random(0, "normal");
  if (dtype == rt::DType::U8)
    for (int64_t i = 0; i < tableSize; ++i)
      values.set(i, static_cast<double>(random.below(256)));
  else
    for (int64_t i = 0; i < tableSize; i += 2) {
      double a, b;
      random.normalPair(a, b);
      values.set(i, a * factor);
      values.set(i + 1, b * factor);
    }
  table = std::move(values.bytes);
}

void NormalSource::draw(uint8_t *out, int64_t count, rt::Random random) const {
  if (size == 1)
    pick(out, table.data(), count, random);
  else if (size == 2)
    pick(reinterpret_cast<uint16_t *>(out), reinterpret_cast<const uint16_t *>(table.data()), count, random);
  else if (size == 4)
    pick(reinterpret_cast<uint32_t *>(out), reinterpret_cast<const uint32_t *>(table.data()), count, random);
  else
    pick(reinterpret_cast<uint64_t *>(out), reinterpret_cast<const uint64_t *>(table.data()), count, random);
}

void NormalSource::fill(uint8_t *out, std::span<const int64_t> slots, int64_t length,
                        const rt::Random &random) const {
  const int64_t lineBytes = length * static_cast<int64_t>(size);
  const int64_t draws = (length + drawn - 1) / drawn;
  inParallel(static_cast<int64_t>(slots.size()), length, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line)
      draw(out + slots[static_cast<size_t>(line)] * lineBytes, length, random.after(line * draws));
  });
}

void NormalSource::fill(uint8_t *out, int64_t count, const rt::Random &random) const {
  const int64_t draws = (count + drawn - 1) / drawn;
  inParallel(draws, drawn, [&](int64_t begin, int64_t end) {
    draw(out + begin * drawn * static_cast<int64_t>(size), std::min(end * drawn, count) - begin * drawn,
         random.after(begin));
  });
}

rt::Tensor run::normalTensor(rt::DType dtype, std::vector<int64_t> shape, uint64_t seed,
                             const std::string &name, double factor) {
  rt::Tensor tensor(dtype, std::move(shape));
  NormalSource(dtype, factor).fill(tensor.bytes.data(), tensor.elements(), rt::Random(seed, name));
  return tensor;
}

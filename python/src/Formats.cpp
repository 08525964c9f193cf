//===- Formats.cpp - Formats in Python ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Binding.h"

#include "attn-c/Runtime.h"

namespace attn::python {

namespace {

/// The arguments of quantize and dequantize, kept while they are used.
struct Rows {
  std::string format;
  int64_t dim;
  BufferView numbers, meta, codes;
  float scale;
  AttnRows given() const {
    return {format.c_str(), dim,          static_cast<float *>(numbers.data()),
            meta.data(),    codes.data(), numbers.size(),
            meta.size(),    codes.size(), scale};
  }
};

} // namespace

void bindFormats(py::module_ &module) {
  using namespace py::literals;

  module.def(
      "store_tensors",
      [](const std::string &store, int32_t page, bool ragged, int32_t heads, int32_t keyDim, int32_t valueDim,
         const std::string &key, const std::string &value) {
        const AttnStore given{store.c_str(), page,     ragged,      heads,
                              keyDim,        valueDim, key.c_str(), value.c_str()};
        Bytes description;
        run([&] { return attnStoreTensors(&given, description.out()); });
        return textOf(description.get());
      },
      py::kw_only(), "store"_a, "page"_a = 0, "ragged"_a = false, "heads"_a, "key_dim"_a, "value_dim"_a,
      "key"_a, "value"_a);

  module.def(
      "quantize",
      [](std::string format, int64_t dim, py::handle numbers, py::handle meta, py::handle codes,
         float scale) {
        const Rows rows{std::move(format), dim, {numbers, false}, {meta, true}, {codes, true}, scale};
        const AttnRows given = rows.given();
        int64_t notFinite = 0;
        run([&] { return attnQuantizeRows(&given, &notFinite); });
        return notFinite;
      },
      "format"_a, "dim"_a, "numbers"_a, "meta"_a, "codes"_a, "scale"_a = 1.0F);
  module.def(
      "dequantize",
      [](std::string format, int64_t dim, py::handle codes, py::handle meta, py::handle numbers,
         float scale) {
        const Rows rows{std::move(format), dim, {numbers, true}, {meta, false}, {codes, false}, scale};
        const AttnRows given = rows.given();
        run([&] { return attnDequantizeRows(&given); });
      },
      "format"_a, "dim"_a, "codes"_a, "meta"_a, "numbers"_a, "scale"_a = 1.0F);
}

} // namespace attn::python

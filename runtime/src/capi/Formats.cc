//===- Formats.cc - The C API's stores and formats ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "attn_rt/tensor/Store.h"
#include "support/Json.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

/// Parses a format. Quantized types without metadata in the text get the usual metadata of rows of `dim`.
static Result<Format> formatOf(const char *text, int64_t dim) {
  if (!text)
    return inputError("expected a format, got null");
  std::optional<Format> format = Format::parse(text);
  for (const std::string &per : {std::to_string(Format::defaultGroup(dim)), std::string("token")})
    if (!format)
      format = Format::parse(text + (" per " + per));
  if (!format)
    return inputError(std::string("expected a format, as in bf16, i4 per 64 or f8e4m3fn per head, got '") +
                      text + "'");
  if (const std::string fault = format->faultOf(dim); !fault.empty())
    return inputError(fault);
  return *format;
}

static Result<Store> storeOf(const AttnStore &given) {
  const auto *const kind =
      std::find(std::begin(storeWords), std::end(storeWords), given.store ? given.store : "");
  if (kind == std::end(storeWords))
    return inputError(std::string("expected dense, packed, paged or unified, got '") +
                      (given.store ? given.store : "") + "'");
  Store store{.kind = static_cast<StoreKind>(kind - std::begin(storeWords)),
              .page = given.page,
              .ragged = given.ragged,
              .heads = given.heads};
  if (store.isUnified() && !given.ragged)
    return inputError("expected a unified store to be ragged");
  if (store.isPaged() ? given.page < 1 : given.page != 0)
    return inputError("expected pages of at least 1 token, and none but in a paged store, got " +
                      std::to_string(given.page));
  const struct {
    const char *name, *format;
    int64_t dim;
    StorePart &part;
  } parts[] = {{"key", given.key, given.keyDim, store.keys},
               {"value", given.value, given.valueDim, store.values}};
  const bool latent = given.value && given.value == Store::partOfKey;
  for (const auto &[name, text, dim, part] : parts) {
    if (latent && &part == &store.values) {
      store.values = {store.keys.letter, dim, store.keys.format};
      break;
    }
    Result<Format> format = dim > 0 ? formatOf(text, dim) : inputError("expected features, got none");
    if (!format)
      return inputError(std::string(name) + ": " + format.error().message);
    part.dim = dim;
    part.format = *format;
  }
  for (const StorePart *part : {&store.keys, &store.values})
    if (part->format.isMixed() && (!latent || store.values.dim != store.keys.format.rowCoded(store.keys.dim)))
      return inputError(
          "value: expected the first 512 features of keys in " + part->format.text() + ", got " +
          (latent ? "the first " + std::to_string(given.valueDim) : std::string("values apart")) +
          "; nearest legal: " + std::string(Store::partOfKey) + " with 512 features");
  if (latent && (given.valueDim < 1 || given.valueDim > given.keyDim))
    return inputError("value: expected a value inside of its key, the first of its " +
                      std::to_string(given.keyDim) + " features, got " + std::to_string(given.valueDim));
  return store;
}

/// The offset of a tensor's part of a unified page, in bytes.
static int64_t placeIn(const Store &store, const StoreTensor &tensor) {
  const Store::PageParts parts = store.pageParts();
  const bool keys = tensor.name.front() == store.keys.letter;
  if (tensor.content == StoreTensor::Content::Codes)
    return keys ? parts.keys : parts.values;
  return keys ? parts.keyMeta : parts.valueMeta;
}

AttnStatus attnStoreTensors(const AttnStore *store, AttnBytes **description) {
  return guarded([&]() -> Status {
    if (Status status = required("store, description", store, description); !status)
      return status;
    Result<Store> made = storeOf(*store);
    if (!made)
      return made.error();
    Json tensors = Json::array();
    for (const StoreTensor &tensor : made->data()) {
      const bool strided = made->isUnified()
                               ? tensor.content != StoreTensor::Content::Scales
                               : made->isStrided() && tensor.content == StoreTensor::Content::Codes;
      Json dims = Json::array();
      for (const StoreDim &dim : tensor.dims)
        dims.push_back(dim.size ? Json(std::string(sizeName(*dim.size))) : Json(dim.value));
      tensors.push_back({{"name", tensor.name},
                         {"dtype", dtypeName(tensor.dtype)},
                         {"dims", dims},
                         {"strided", strided},
                         {"in_page", nullptr}});
      if (made->isUnified() && strided)
        tensors.back()["in_page"] = placeIn(*made, tensor);
    }
    const Json json{{"key", made->keys.format.text()},
                    {"value", made->isLatent() ? std::string(Store::partOfKey) : made->values.format.text()},
                    {"token_bytes", made->tokenBytes()},
                    {"heads_first", made->hasHeadsFirst()},
                    {"page_bytes", made->isUnified() ? made->pageParts().bytes : 0},
                    {"tensors", tensors}};
    *description = new AttnBytes{dumpJson(json)};
    return {};
  });
}

/// Rows of a caller, each with its own metadata.
struct Rows {
  Format format;
  int64_t count;

  static Result<Rows> of(const AttnRows *given) {
    if (Status status = required("rows", given); !status)
      return status.error();
    if (given->dim < 1 || given->dim > 1 << 20)
      return inputError("expected rows of 1 to 2^20 features, got " + std::to_string(given->dim));
    Result<Format> format = formatOf(given->format, given->dim);
    if (!format)
      return format.error();
    const auto each = static_cast<size_t>(given->dim) * sizeof(float);
    const Rows rows{*format, static_cast<int64_t>(given->numbersSize / each)};
    const struct {
      const char *name;
      const void *data;
      size_t size;
      int64_t row;
    } parts[] = {{"numbers", given->numbers, given->numbersSize, static_cast<int64_t>(each)},
                 {"meta", given->meta, given->metaSize, format->metaBytes(given->dim)},
                 {"codes", given->codes, given->codesSize, format->rowBytes(given->dim)}};
    for (const auto &[name, data, size, row] : parts) {
      const auto wanted = static_cast<size_t>(rows.count * row);
      if (size != wanted || (wanted && !data))
        return inputError(std::string(name) + ": expected " + std::to_string(wanted) + " bytes for " +
                          std::to_string(rows.count) + " rows of " + format->text() + ", got " +
                          std::to_string(data ? size : 0));
    }
    return rows;
  }
};

static uint8_t *rowOf(void *bytes, int64_t row, int64_t rowBytes) {
  return bytes ? static_cast<uint8_t *>(bytes) + row * rowBytes : nullptr;
}

AttnStatus attnQuantizeRows(const AttnRows *rows, int64_t *notFinite) {
  return guarded([&]() -> Status {
    const Result<Rows> made = Rows::of(rows);
    if (!made)
      return made.error();
    const Format &format = made->format;
    const int64_t dim = rows->dim;
    std::vector<float> row(static_cast<size_t>(dim));
    int64_t clamped = 0;
    for (int64_t i = 0; i < made->count; ++i) {
      uint8_t *meta = rowOf(rows->meta, i, format.metaBytes(dim));
      std::copy_n(rows->numbers + i * dim, dim, row.begin());
      clamped += clampRow(format, row);
      findMeta(format, row, meta, rows->scale);
      quantizeRow(format, row, meta, rowOf(rows->codes, i, format.rowBytes(dim)), rows->scale);
    }
    if (notFinite)
      *notFinite = clamped;
    return {};
  });
}

AttnStatus attnDequantizeRows(const AttnRows *rows) {
  return guarded([&]() -> Status {
    const Result<Rows> made = Rows::of(rows);
    if (!made)
      return made.error();
    const Format &format = made->format;
    const RowDecoder decoder(format);
    for (int64_t i = 0; i < made->count; ++i)
      decoder.decode(rowOf(rows->codes, i, format.rowBytes(rows->dim)),
                     rowOf(rows->meta, i, format.metaBytes(rows->dim)),
                     {rows->numbers + i * rows->dim, static_cast<size_t>(rows->dim)}, rows->scale);
    return {};
  });
}

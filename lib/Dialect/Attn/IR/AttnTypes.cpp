//===- AttnTypes.cpp - KV operands and softmax states ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Dialect/Attn/IR/Stores.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::attn;

/// Parses `dense`, `packed`, `paged<N>` or `unified<N>`.
static ParseResult parseStore(AsmParser &parser, Store &store, int64_t &page) {
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  page = 0;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Store> kind = symbolizeStore(keyword);
  if (!kind)
    return parser.emitError(loc, "expected a store, one of dense, packed, paged<N> and unified<N>, got ")
           << keyword;
  store = *kind;
  if (!KVType::hasPages(store))
    return success();
  return failure(parser.parseLess() || parser.parseInteger(page) || parser.parseGreater());
}

Type KVType::parse(AsmParser &parser) {
  Store store;
  int64_t page, heads, keyDim, valueDim;
  bool ragged = false, latent = false;
  Type key, value;
  SMLoc loc = parser.getCurrentLocation();
  auto parseField = [&](StringRef name) -> ParseResult {
    return failure(parser.parseComma() || parser.parseKeyword(name) || parser.parseEqual());
  };
  auto parseHeads = [&]() -> ParseResult {
    heads = ShapedType::kDynamic;
    return succeeded(parser.parseOptionalQuestion()) ? success() : parser.parseInteger(heads);
  };
  // Parses `first<features>`, of the key, or a type.
  auto parseValue = [&]() -> ParseResult {
    if (failed(parser.parseOptionalKeyword("first")))
      return parser.parseType(value);
    latent = true, value = key;
    return failure(parser.parseLess() || parser.parseInteger(valueDim) || parser.parseGreater());
  };
  if (parser.parseLess() || parseStore(parser, store, page) || parser.parseComma())
    return {};
  if (store == Store::Unified) {
    ragged = true;
  } else if (succeeded(parser.parseOptionalKeyword("ragged"))) {
    ragged = true;
    if (parser.parseComma())
      return {};
  }
  if (parser.parseKeyword("heads") || parser.parseEqual() || parseHeads() || parseField("dim") ||
      parser.parseInteger(keyDim) || parser.parseComma())
    return {};
  valueDim = keyDim;
  if (succeeded(parser.parseOptionalKeyword("value_dim")))
    if (parser.parseEqual() || parser.parseInteger(valueDim) || parser.parseComma())
      return {};
  if (parser.parseKeyword("key") || parser.parseEqual() || parser.parseType(key) || parseField("value") ||
      parseValue() || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), store, page, ragged, heads,
                    keyDim, valueDim, key, value, latent);
}

void KVType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyStore(getStore());
  if (isPaged())
    printer << "<" << getPage() << ">";
  printer << (getRagged() && getStore() != Store::Unified ? ", ragged" : "") << ", heads = ";
  if (isOfClass())
    printer << "?";
  else
    printer << getHeads();
  printer << ", dim = " << getKeyDim();
  if (getLatent()) {
    printer << ", key = " << getKey() << ", value = first<" << getValueDim() << ">>";
    return;
  }
  if (getValueDim() != getKeyDim())
    printer << ", value_dim = " << getValueDim();
  printer << ", key = " << getKey() << ", value = " << getValue() << ">";
}

/// Verifies a value that is a part of its key, and keys and values of more features than formats have.
static LogicalResult verifyParts(function_ref<InFlightDiagnostic()> emitError, Store store, int64_t keyDim,
                                 int64_t valueDim, Type key, Type value, bool latent) {
  if (latent && store == Store::Unified)
    return emitError() << "expected keys and values apart in a unified store, got values that are a part of "
                          "their keys; nearest legal: paged";
  auto codes = dyn_cast<QuantizedType>(key);
  for (Type stored : {key, value})
    if (auto mixed = dyn_cast<QuantizedType>(stored);
        mixed && mixed.getRest() && !(latent && valueDim == keyDim - mixed.getRest()))
      return emitError() << "expected a value that is the quantized features of its key beside a rest of "
                         << mixed.getRest() << "; nearest legal: value = first<" << keyDim - mixed.getRest()
                         << ">";
  if (latent && codes && (!isa<Float8E4M3FNType>(codes.getElement()) || codes.getScale()))
    return emitError() << "expected keys of f16, bf16 or f8E4M3FN with a scale per tensor, head or token, or "
                          "per 128 and a "
                          "rest of 64, where values are a part of them, got "
                       << key << "; nearest legal: !attn.quantized<f8E4M3FN, per = token>";
  if (latent && valueDim > keyDim)
    return emitError() << "expected a value inside of its key, the first of its " << keyDim
                       << " features, got first<" << valueDim
                       << ">; nearest legal: " << mlir::attn::detail::nearestValueDim(keyDim);
  // Warps that share rows have slices in whole panels of 128 quantized elements.
  if (latent && codes && valueDim > mlir::attn::detail::mostSimpleDim && valueDim % 256 != 0)
    return emitError() << "expected a value of up to " << mlir::attn::detail::mostSimpleDim
                       << " or of 512 features of quantized keys, got first<" << valueDim
                       << ">; nearest legal: first<256>" << (keyDim >= 512 ? " or first<512>" : "");
  for (auto [what, stored, dim] : {std::tuple("keys", key, keyDim), std::tuple("values", value, valueDim)})
    if (!latent && isa<QuantizedType>(stored) &&
        std::max(keyDim, valueDim) > mlir::attn::detail::mostSimpleDim)
      return emitError() << "expected " << what << " of f16 or bf16 beside more than "
                         << mlir::attn::detail::mostSimpleDim << " features, got " << stored << " with "
                         << dim;
  return success();
}

LogicalResult KVType::verify(function_ref<InFlightDiagnostic()> emitError, Store store, int64_t page,
                             bool ragged, int64_t heads, int64_t keyDim, int64_t valueDim, Type key,
                             Type value, bool latent) {
  if (store == Store::Unified && !ragged)
    return emitError() << "expected a unified store to be ragged";
  if (hasPages(store)) {
    using Pages = ::attn::rt::Store;
    if (!Pages::isPageSize(page))
      return emitError() << "expected a page size that is " << Pages::pageSizes.data() << ", got " << page
                         << "; nearest legal: " << Pages::nearestPageSizes(page);
  } else if (page != 0) {
    return emitError() << "expected no page size for a " << stringifyStore(store) << " store, got " << page;
  }
  if ((!ShapedType::isDynamic(heads) && failed(detail::verifyHeads(emitError, "KV heads", heads))) ||
      failed(detail::verifyKeyDim(emitError, "key dim", keyDim)) ||
      failed(detail::verifyValueDim(emitError, "value dim", valueDim)) ||
      failed(detail::verifyStored(emitError, "key", key, keyDim)) ||
      failed(verifyParts(emitError, store, keyDim, valueDim, key, value, latent)))
    return failure();
  auto codes = dyn_cast<QuantizedType>(key);
  if (latent && codes && codes.getRest())
    return success(); // verified as a part of the key
  return detail::verifyStored(emitError, "value", value, valueDim);
}

/// Parses a word or, for a group, its number of features.
Type QuantizedType::parse(AsmParser &parser) {
  Type element;
  Per per = Per::Group;
  int64_t group = 0;
  Type scale;
  int64_t rest = 0;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseType(element) || parser.parseComma() || parser.parseKeyword("per") ||
      parser.parseEqual())
    return {};
  if (OptionalParseResult number = parser.parseOptionalInteger(group); number.has_value()) {
    if (failed(*number))
      return {};
  } else {
    StringRef word;
    SMLoc here = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return {};
    std::optional<Per> parsed = symbolizePer(word);
    if (!parsed || *parsed == Per::Group) {
      parser.emitError(here, "expected tensor, head, token or a number of features, got ") << word;
      return {};
    }
    per = *parsed;
  }
  if (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("rest"))) {
      if (parser.parseEqual() || parser.parseInteger(rest))
        return {};
    } else if (parser.parseKeyword("scale") || parser.parseEqual() || parser.parseType(scale)) {
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), element, per, group, scale,
                    rest);
}

void QuantizedType::print(AsmPrinter &printer) const {
  printer << "<" << getElement() << ", per = ";
  if (getPer() == Per::Group)
    printer << getGroup();
  else
    printer << stringifyPer(getPer());
  if (getScale())
    printer << ", scale = " << getScale();
  if (getRest())
    printer << ", rest = " << getRest();
  printer << ">";
}

LogicalResult QuantizedType::verify(function_ref<InFlightDiagnostic()> emitError, Type element, Per per,
                                    int64_t group, Type scale, int64_t rest) {
  const rt::Format::Blocks blocks = scale ? blocksOf(scale) : rt::Format::Blocks::None;
  if (scale && blocks == rt::Format::Blocks::None)
    return emitError() << "expected scales of " << llvm::join(rt::Format::blockScaleNames(), ", ")
                       << ", or none named, got " << scale;
  rt::Format format;
  if (rest) {
    if (!isa<Float8E4M3FNType>(element) || per != Per::Group || scale)
      return emitError() << "expected a rest of features beside f8E4M3FN per 128, got " << element << " per "
                         << (per == Per::Group ? Twine(group).str() : stringifyPer(per).str())
                         << "; nearest legal: !attn.quantized<f8E4M3FN, per = 128, rest = 64>";
    format = rt::Format::rows(group, rest);
  } else if (scale && isa<Float4E2M1FNType>(element))
    format = {rt::DType::U8, 4, rt::Format::Scales(per), group, blocks};
  else if (element.isSignlessInteger())
    format = {rt::DType::U8, int(element.getIntOrFloatBitWidth()), rt::Format::Scales(per), group};
  else if (const rt::ElementType *known = findElement(element))
    format = {known->dtype, known->bits, rt::Format::Scales(per), group, blocks};
  else
    return emitError()
           << "expected quantized elements of f8E4M3FN, f8E5M2, i8, i4 or i2, or of f4E2M1FN in blocks, got "
           << element;
  std::string fault = format.fault();
  return fault.empty() ? success() : LogicalResult(emitError() << fault);
}

LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t heads,
                                int64_t valueDim) {
  if (failed(detail::verifyHeads(emitError, "state heads", heads)))
    return failure();
  return detail::verifyValueDim(emitError, "state value dim", valueDim);
}

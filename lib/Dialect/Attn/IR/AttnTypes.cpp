//===- AttnTypes.cpp - KV operands and softmax states ---------------------===//
#include "Verify.h"

#include "attn_rt/Store.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::attn;

/// `dense`, `packed` or `paged<N>`.
static ParseResult parseStore(AsmParser &parser, Store &store, int64_t &page) {
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  page = 0;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Store> kind = symbolizeStore(keyword);
  if (!kind)
    return parser.emitError(loc, "expected a store, one of dense, packed and paged<N>, got ") << keyword;
  store = *kind;
  if (store != Store::Paged)
    return success();
  return failure(parser.parseLess() || parser.parseInteger(page) || parser.parseGreater());
}

Type KVType::parse(AsmParser &parser) {
  Store store;
  int64_t page, heads, keyDim, valueDim;
  bool ragged = false;
  Type key, value;
  SMLoc loc = parser.getCurrentLocation();
  auto parseField = [&](StringRef name) -> ParseResult {
    return failure(parser.parseComma() || parser.parseKeyword(name) || parser.parseEqual());
  };
  auto parseHeads = [&]() -> ParseResult {
    heads = ShapedType::kDynamic;
    return succeeded(parser.parseOptionalQuestion()) ? success() : parser.parseInteger(heads);
  };
  if (parser.parseLess() || parseStore(parser, store, page) || parser.parseComma())
    return {};
  if (succeeded(parser.parseOptionalKeyword("ragged"))) {
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
      parser.parseType(value) || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(loc); }, parser.getContext(), store, page, ragged, heads,
                    keyDim, valueDim, key, value);
}

void KVType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyStore(getStore());
  if (getStore() == Store::Paged)
    printer << "<" << getPage() << ">";
  printer << (getRagged() ? ", ragged" : "") << ", heads = ";
  if (isOfClass())
    printer << "?";
  else
    printer << getHeads();
  printer << ", dim = " << getKeyDim();
  if (getValueDim() != getKeyDim())
    printer << ", value_dim = " << getValueDim();
  printer << ", key = " << getKey() << ", value = " << getValue() << ">";
}

LogicalResult KVType::verify(function_ref<InFlightDiagnostic()> emitError, Store store, int64_t page,
                             bool /*ragged*/, int64_t heads, int64_t keyDim, int64_t valueDim, Type key,
                             Type value) {
  if (store == Store::Paged) {
    using Pages = ::attn::rt::Store;
    if (!Pages::isPageSize(page)) {
      InFlightDiagnostic error = emitError() << "expected a page size that is " << Pages::pageSizes.data()
                                             << ", got " << page << "; nearest legal: ";
      if (page < 1)
        return error << 1;
      if (page > Pages::mostPageTokens)
        return error << Pages::mostPageTokens;
      return error << llvm::bit_floor(uint64_t(page)) << " or " << llvm::bit_ceil(uint64_t(page));
    }
  } else if (page != 0) {
    return emitError() << "expected no page size for a " << stringifyStore(store) << " store, got " << page;
  }
  if ((!ShapedType::isDynamic(heads) && failed(detail::verifyHeads(emitError, "KV heads", heads))) ||
      failed(detail::verifyDim(emitError, "key dim", keyDim)) ||
      failed(detail::verifyDim(emitError, "value dim", valueDim)) ||
      failed(detail::verifyStored(emitError, "key", key, keyDim)))
    return failure();
  return detail::verifyStored(emitError, "value", value, valueDim);
}

LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t heads,
                                int64_t valueDim) {
  if (failed(detail::verifyHeads(emitError, "state heads", heads)))
    return failure();
  return detail::verifyDim(emitError, "state value dim", valueDim);
}

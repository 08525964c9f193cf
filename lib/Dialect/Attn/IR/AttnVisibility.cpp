//===- AttnVisibility.cpp - Which tokens a row sees -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mlir::attn;
using ::attn::rt::findTerm;
using ::attn::rt::IntegerPositions;
using ::attn::rt::intervalOf;
using ::attn::rt::isConnective;
using ::attn::rt::termOf;
using ::attn::rt::VisibilityTerm;
using ::attn::rt::visibilityTerms;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

namespace {
/// union := intersection ((`|` | `or`) intersection)*
/// intersection := term ((`and` | `*`) term)*
/// term := `(` union `)` | word (`(` size (`,` size)* `)`)?
class ExpressionParser {
public:
  explicit ExpressionParser(AsmParser &parser) : parser(parser) {}

  FailureOr<VisibilityAttr> parseUnion(unsigned depth = 0) {
    return parseList(
        VisibilityKind::Or, [&] { return parseIntersection(depth); },
        [&] {
          return succeeded(parser.parseOptionalVerticalBar()) || succeeded(parser.parseOptionalKeyword("or"));
        });
  }

private:
  FailureOr<VisibilityAttr> parseIntersection(unsigned depth) {
    return parseList(
        VisibilityKind::And, [&] { return parseTerm(depth); },
        [&] {
          return succeeded(parser.parseOptionalKeyword("and")) || succeeded(parser.parseOptionalStar());
        });
  }

  FailureOr<VisibilityAttr> parseList(VisibilityKind kind,
                                      function_ref<FailureOr<VisibilityAttr>()> parsePart,
                                      function_ref<bool()> another) {
    SMLoc loc = parser.getCurrentLocation();
    SmallVector<VisibilityAttr> parts;
    do {
      FailureOr<VisibilityAttr> part = parsePart();
      if (failed(part))
        return failure();
      parts.push_back(*part);
    } while (another());
    if (parts.size() == 1)
      return parts.front();
    VisibilityAttr list =
        VisibilityAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), kind,
                                   ArrayRef<int64_t>(), ArrayRef<VisibilityAttr>(parts));
    if (!list)
      return failure();
    return list;
  }

  FailureOr<VisibilityAttr> parseTerm(unsigned depth) {
    SMLoc loc = parser.getCurrentLocation();
    if (succeeded(parser.parseOptionalLParen())) {
      if (depth == kMaxDepth)
        return parser.emitError(loc, "expected a visibility of at most ")
               << kMaxDepth << " nested parentheses";
      FailureOr<VisibilityAttr> inner = parseUnion(depth + 1);
      if (failed(inner) || parser.parseRParen())
        return failure();
      return inner;
    }
    StringRef keyword;
    SmallVector<int64_t> sizes;
    if (succeeded(parser.parseOptionalKeyword(&keyword)) && succeeded(parser.parseOptionalLParen()))
      if (parser.parseCommaSeparatedList([&] { return parser.parseInteger(sizes.emplace_back()); }) ||
          parser.parseRParen())
        return failure();
    std::optional<VisibilityKind> kind = findTerm(keyword, static_cast<int>(sizes.size()));
    if (!kind || isConnective(*kind)) {
      InFlightDiagnostic error = parser.emitError(loc, "expected a visibility: ");
      for (const VisibilityTerm &term : visibilityTerms)
        if (!isConnective(VisibilityKind(&term - visibilityTerms)))
          error << formOf(term) << ", ";
      error << "or a parenthesis";
      if (!keyword.empty())
        error << "; got '" << keyword << "'";
      if (!sizes.empty())
        error << " of " << sizes.size() << (sizes.size() == 1 ? " size" : " sizes");
      return failure();
    }
    VisibilityAttr term =
        VisibilityAttr::getChecked([&] { return parser.emitError(loc); }, parser.getContext(), *kind,
                                   ArrayRef<int64_t>(sizes), ArrayRef<VisibilityAttr>());
    if (!term)
      return failure();
    return term;
  }

  static std::string formOf(const VisibilityTerm &term) {
    std::string form(term.word);
    return term.sizes.empty() ? form : form + "(" + std::string(term.sizes) + ")";
  }

  /// Bounds the recursion here and in every walk of the result.
  static constexpr unsigned kMaxDepth = 32;
  AsmParser &parser;
};
} // namespace

FailureOr<VisibilityAttr> VisibilityAttr::parseExpression(AsmParser &parser) {
  return ExpressionParser(parser).parseUnion();
}

void VisibilityAttr::printExpression(AsmPrinter &printer) const {
  if (!isConnective(getKind())) {
    printer << StringRef(termOf(getKind()).word);
    if (!getSizes().empty())
      printer << "(" << getSizes() << ")";
    return;
  }
  bool isAnd = getKind() == VisibilityKind::And;
  llvm::interleave(
      getOperands(),
      [&](VisibilityAttr operand) {
        // A union inside an intersection needs parentheses; they also preserve a list inside a list of its
        // kind.
        bool parentheses =
            operand.getKind() == getKind() || (isAnd && operand.getKind() == VisibilityKind::Or);
        printer << (parentheses ? "(" : "");
        operand.printExpression(printer);
        printer << (parentheses ? ")" : "");
      },
      [&] { printer << (isAnd ? " and " : " | "); });
}

Attribute VisibilityAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<VisibilityAttr> visibility = parseExpression(parser);
  if (failed(visibility) || parser.parseGreater())
    return {};
  return *visibility;
}

void VisibilityAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printExpression(printer);
  printer << ">";
}

/// Counts the intersections whose union is the visibility, as compiler and planner split it; at most `most` +
/// 1.
static size_t countTerms(VisibilityKind kind, ArrayRef<VisibilityAttr> operands, size_t most) {
  size_t count = kind == VisibilityKind::Or ? 0 : 1;
  for (VisibilityAttr operand : operands) {
    const size_t terms = countTerms(operand.getKind(), operand.getOperands(), most);
    count = std::min(kind == VisibilityKind::Or ? count + terms : count * terms, most + 1);
  }
  return count;
}

LogicalResult VisibilityAttr::verify(function_ref<InFlightDiagnostic()> emitError, VisibilityKind kind,
                                     ArrayRef<int64_t> sizes, ArrayRef<VisibilityAttr> operands) {
  constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
  const VisibilityTerm &term = termOf(kind);
  const StringRef word = term.word;
  if (int64_t(sizes.size()) != term.sizeCount())
    return emitError() << "expected " << term.sizeCount() << " sizes for " << word << ", got "
                       << sizes.size();
  for (int64_t size : sizes)
    if (size < term.leastSize || size > kMaxSize)
      return emitError() << "expected the size of " << word << " to be from " << term.leastSize << " to "
                         << kMaxSize << ", got " << size
                         << "; nearest legal: " << std::clamp<int64_t>(size, term.leastSize, kMaxSize);
  if (isConnective(kind) ? operands.size() < 2 : !operands.empty())
    return emitError() << "expected " << (isConnective(kind) ? "two or more operands" : "no operands")
                       << " for " << word << ", got " << operands.size();
  if (constexpr size_t most = 256; countTerms(kind, operands, most) > most)
    return emitError() << "expected a visibility that is a union of at most " << most
                       << " intersections, got more";
  return success();
}

//===----------------------------------------------------------------------===//
// Algebra
//===----------------------------------------------------------------------===//

bool VisibilityAttr::isStaticallyEmpty() const {
  auto empty = [](VisibilityAttr operand) { return operand.isStaticallyEmpty(); };
  if (getKind() == VisibilityKind::Or)
    return llvm::all_of(getOperands(), empty);
  if (getKind() == VisibilityKind::And)
    return llvm::any_of(getOperands(), empty);
  // A term that shows nothing to one row shows nothing to any row.
  auto shown = intervalOf(getKind(), IntegerPositions(), int64_t{0}, getSizes());
  return shown.end && *shown.end <= shown.begin.value_or(0);
}

bool VisibilityAttr::implies(VisibilityAttr a, VisibilityAttr b) {
  // Equal text is the same set: its ends are the same numbers of the same text.
  if (a == b || b.getKind() == VisibilityKind::All || a.isStaticallyEmpty())
    return true;
  auto toB = [&](VisibilityAttr part) { return implies(part, b); };
  auto fromA = [&](VisibilityAttr part) { return implies(a, part); };
  if (a.getKind() == VisibilityKind::Or)
    return llvm::all_of(a.getOperands(), toB);
  if (b.getKind() == VisibilityKind::And)
    return llvm::all_of(b.getOperands(), fromA);
  if (a.getKind() == VisibilityKind::And && llvm::any_of(a.getOperands(), toB))
    return true;
  if (b.getKind() == VisibilityKind::Or && llvm::any_of(b.getOperands(), fromA))
    return true;
  return !isConnective(a.getKind()) && !isConnective(b.getKind()) &&
         ::attn::rt::implies(a.getKind(), b.getKind());
}

/// Flattens lists of `kind`, drops every part that `redundant(part, another)` and joins the rest.
static VisibilityAttr join(VisibilityKind kind, ArrayRef<VisibilityAttr> parts,
                           function_ref<bool(VisibilityAttr, VisibilityAttr)> redundant) {
  SmallVector<VisibilityAttr> flat;
  for (VisibilityAttr part : parts) {
    if (part.getKind() == kind)
      llvm::append_range(flat, part.getOperands());
    else
      flat.push_back(part);
  }
  SmallVector<bool> dropped(flat.size(), false);
  for (auto [i, part] : llvm::enumerate(flat))
    for (auto [j, another] : llvm::enumerate(flat))
      // If two parts make each other redundant, the earlier one stays.
      if (i != j && !dropped[j] && redundant(part, another) && !(i < j && redundant(another, part))) {
        dropped[i] = true;
        break;
      }
  SmallVector<VisibilityAttr> kept;
  for (auto [part, drop] : llvm::zip(flat, dropped))
    if (!drop)
      kept.push_back(part);
  return kept.size() == 1 ? kept.front() : VisibilityAttr::get(kind, kept);
}

VisibilityAttr VisibilityAttr::unite(MLIRContext *context, ArrayRef<VisibilityAttr> parts) {
  if (parts.empty())
    return get(context, VisibilityKind::Sink, ArrayRef<int64_t>{0});
  return join(VisibilityKind::Or, parts, [](VisibilityAttr part, VisibilityAttr another) {
    return VisibilityAttr::implies(part, another);
  });
}

VisibilityAttr VisibilityAttr::intersect(MLIRContext *context, ArrayRef<VisibilityAttr> parts) {
  if (parts.empty())
    return get(context, VisibilityKind::All);
  return join(VisibilityKind::And, parts, [](VisibilityAttr part, VisibilityAttr another) {
    return VisibilityAttr::implies(another, part);
  });
}

VisibilityAttr VisibilityAttr::simplify() const {
  if (isStaticallyEmpty())
    return isConnective(getKind()) ? get(getContext(), VisibilityKind::Sink, ArrayRef<int64_t>{0}) : *this;
  if (!isConnective(getKind()))
    return *this;
  SmallVector<VisibilityAttr> parts;
  for (VisibilityAttr operand : getOperands())
    parts.push_back(operand.simplify());
  return getKind() == VisibilityKind::Or ? unite(getContext(), parts) : intersect(getContext(), parts);
}

void VisibilityAttr::collectEnds(SmallVectorImpl<int64_t> &ends) const {
  llvm::append_range(ends, getSizes());
  for (VisibilityAttr operand : getOperands())
    operand.collectEnds(ends);
}

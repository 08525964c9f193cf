//===- AttnHeadClasses.cpp - Heads that see less --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::attn;

FailureOr<HeadClassesAttr> HeadClassesAttr::parseClasses(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<StringAttr> names;
  SmallVector<VisibilityAttr> visibility;
  auto parseClass = [&]() -> ParseResult {
    std::string name;
    if (parser.parseKeywordOrString(&name) || parser.parseColon() || parser.parseKeyword("see"))
      return failure();
    FailureOr<VisibilityAttr> see = VisibilityAttr::parseExpression(parser);
    if (failed(see))
      return failure();
    names.push_back(parser.getBuilder().getStringAttr(name));
    visibility.push_back(*see);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, parseClass))
    return failure();
  auto classes = getChecked([&] { return parser.emitError(loc); }, parser.getContext(),
                            ArrayRef<StringAttr>(names), ArrayRef<VisibilityAttr>(visibility));
  if (!classes)
    return failure();
  return classes;
}

void HeadClassesAttr::printClasses(AsmPrinter &printer) const {
  printer << "{";
  llvm::interleaveComma(llvm::zip(getNames(), getVisibility()), printer, [&](auto pair) {
    auto [name, see] = pair;
    printer.printKeywordOrString(name.getValue());
    printer << ": see ";
    see.printExpression(printer);
  });
  printer << "}";
}

Attribute HeadClassesAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<HeadClassesAttr> classes = parseClasses(parser);
  if (failed(classes) || parser.parseGreater())
    return {};
  return *classes;
}

void HeadClassesAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printClasses(printer);
  printer << ">";
}

LogicalResult HeadClassesAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                      ArrayRef<StringAttr> names, ArrayRef<VisibilityAttr> visibility) {
  if (names.empty() || names.size() > kMaxClasses)
    return emitError() << "expected from 1 to " << kMaxClasses << " head classes, got " << names.size()
                       << "; nearest legal: " << (names.empty() ? 1 : kMaxClasses);
  if (names.size() != visibility.size())
    return emitError() << "expected one visibility per head class, " << names.size() << ", got "
                       << visibility.size();
  llvm::StringSet<> seen;
  for (StringAttr name : names) {
    if (name.empty())
      return emitError() << "expected head classes with names, got an empty one";
    if (!seen.insert(name.getValue()).second)
      return emitError() << "expected head classes with different names, got '" << name.getValue()
                         << "' twice";
  }
  return success();
}

bool HeadClassesAttr::isStaticallyEmpty() const {
  return llvm::all_of(getVisibility(), [](VisibilityAttr see) { return see.isStaticallyEmpty(); });
}

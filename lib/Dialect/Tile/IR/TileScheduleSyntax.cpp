//===- TileScheduleSyntax.cpp - Schedules as text -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/SmallSet.h"

#include <array>

using namespace mlir;
using namespace mlir::tile;

namespace {

class ScheduleParser {
public:
  ScheduleParser(AsmParser &parser, ScheduleFields &fields) : parser(parser), fields(fields) {}

  /// Parses `name = value`.
  ParseResult parseField() {
    StringRef name;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&name))
      return failure();
    if (!seen.insert(name).second)
      return parser.emitError(loc, "'") << name << "' is given twice";
    if (parser.parseEqual())
      return failure();
    for (auto [known, value] : integers())
      if (name == known)
        return parseInteger(*value);
    for (auto [known, value] : booleans())
      if (name == known)
        return parseBool(*value);
    if (name == "query_copy")
      return parseCopy(fields.queryCopy.emplace());
    if (name == "key_copies" || name == "value_copies")
      return parseCopies(name == "key_copies" ? fields.keyCopies : fields.valueCopies);
    if (name == "epilogue")
      return parseEpilogue();
    return parser.emitError(loc, "a schedule has no field '") << name << "'";
  }

  ParseResult checkRequired(SMLoc loc) {
    for (StringRef name : {"rows", "keys", "warps", "stages", "blocks", "split_keys", "query_in_registers"})
      if (!seen.contains(name))
        return parser.emitError(loc, "expected a schedule to give '") << name << "'";
    return success();
  }

private:
  using Integer = std::pair<StringRef, std::optional<int64_t> *>;
  std::array<Integer, 14> integers() {
    return {Integer{"rows", &fields.rows},
            {"keys", &fields.keys},
            {"warps", &fields.warps},
            {"stages", &fields.stages},
            {"blocks", &fields.blocks},
            {"producers", &fields.producers},
            {"producer_registers", &fields.producerRegisters},
            {"consumer_registers", &fields.consumerRegisters},
            {"query_stages", &fields.queryStages},
            {"value_boxes", &fields.valueBoxes},
            {"exchange_stages", &fields.exchangeStages},
            {"value_slices", &fields.valueSlices},
            {"sequences_up_to", &fields.sequencesUpTo},
            {"shared_bytes", &fields.sharedBytes}};
  }
  using Boolean = std::pair<StringRef, std::optional<bool> *>;
  std::array<Boolean, 4> booleans() {
    return {Boolean{"split_keys", &fields.splitKeys},
            {"query_in_registers", &fields.queryInRegisters},
            {"ping_pong", &fields.pingPong},
            {"shared_weights", &fields.sharedWeights}};
  }

  ParseResult parseInteger(std::optional<int64_t> &value) { return parser.parseInteger(value.emplace()); }
  ParseResult parseBool(std::optional<bool> &value) {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return failure();
    if (word != "true" && word != "false")
      return parser.emitError(loc, "expected true or false, got '") << word << "'";
    value = word == "true";
    return success();
  }
  /// Parses `gather` or `boxes n`.
  ParseResult parseCopy(int64_t &lines) {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return failure();
    lines = ScheduleAttr::gathered;
    if (word == "gather")
      return success();
    if (word != "boxes")
      return parser.emitError(loc, "expected gather or boxes, got '") << word << "'";
    loc = parser.getCurrentLocation();
    if (parser.parseInteger(lines))
      return failure();
    if (lines < 8 || lines > 256 || lines % 8 != 0)
      return parser.emitError(loc, "expected boxes of a multiple of 8 lines up to 256, got ") << lines;
    return success();
  }
  ParseResult parseCopies(SmallVectorImpl<int64_t> &copies) {
    return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                          [&] { return parseCopy(copies.emplace_back()); });
  }
  ParseResult parseEpilogue() {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return failure();
    fields.epilogue = symbolizeEpilogue(word);
    return fields.epilogue ? ParseResult(success())
                           : parser.emitError(loc, "expected store or send, got '") << word << "'";
  }

  AsmParser &parser;
  ScheduleFields &fields;
  llvm::SmallSet<StringRef, 24> seen;
};

} // namespace

Attribute ScheduleAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseLess() || parser.parseKeyword(&word))
    return {};
  std::optional<ScheduleKind> kind = symbolizeScheduleKind(word);
  if (!kind) {
    parser.emitError(loc, "expected mma or wgmma, got '") << word << "'";
    return {};
  }
  ScheduleFields read;
  read.kind = *kind;
  ScheduleParser fields(parser, read);
  while (succeeded(parser.parseOptionalComma()))
    if (fields.parseField())
      return {};
  if (parser.parseGreater() || fields.checkRequired(loc))
    return {};
  return parser.getChecked<ScheduleAttr>(loc, parser.getContext(), read);
}

static void printCopy(AsmPrinter &printer, int64_t lines) {
  if (lines == ScheduleAttr::gathered)
    printer << "gather";
  else
    printer << "boxes " << lines;
}

void ScheduleAttr::print(AsmPrinter &printer) const {
  auto word = [](bool value) { return value ? "true" : "false"; };
  auto integer = [&](StringRef name, std::optional<int64_t> value) {
    if (value)
      printer << ", " << name << " = " << *value;
  };
  auto copies = [&](StringRef name, ArrayRef<int64_t> lines) {
    if (lines.empty())
      return;
    printer << ", " << name << " = [";
    llvm::interleaveComma(lines, printer, [&](int64_t each) { printCopy(printer, each); });
    printer << "]";
  };
  printer << "<" << stringifyScheduleKind(getKind()) << ", rows = " << getRows() << ", keys = " << getKeys()
          << ", warps = " << getWarps() << ", stages = " << getStages() << ", blocks = " << getBlocks()
          << ", split_keys = " << word(getSplitKeys())
          << ", query_in_registers = " << word(getQueryInRegisters());
  integer("producers", getProducers());
  integer("producer_registers", getProducerRegisters());
  integer("consumer_registers", getConsumerRegisters());
  integer("query_stages", getQueryStages());
  if (std::optional<int64_t> lines = getQueryCopy()) {
    printer << ", query_copy = ";
    printCopy(printer, *lines);
  }
  copies("key_copies", getKeyCopies());
  copies("value_copies", getValueCopies());
  integer("value_boxes", getValueBoxes());
  if (std::optional<bool> turns = getPingPong())
    printer << ", ping_pong = " << word(*turns);
  if (std::optional<Epilogue> epilogue = getEpilogue())
    printer << ", epilogue = " << stringifyEpilogue(*epilogue);
  integer("exchange_stages", getExchangeStages());
  integer("value_slices", getValueSlices());
  if (std::optional<bool> shares = getSharedWeights())
    printer << ", shared_weights = " << word(*shares);
  integer("sequences_up_to", getSequencesUpTo());
  integer("shared_bytes", getSharedBytes());
  printer << ">";
}

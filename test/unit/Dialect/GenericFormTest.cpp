//===- GenericFormTest.cpp - Operations with anything missing or wrong ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// In generic form an operation may lack any of its attributes and properties, or have one of another type,
// and likewise its operands, results and regions. Verifiers must reject this, and neither they nor printers
// may trust unchecked parts.
//
//===----------------------------------------------------------------------===//
#include "Texts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace mlir;

namespace {

/// Replacements of each attribute and parameter. Lists are longer and shorter than any operation's.
constexpr const char *kOthers[] = {"unit",
                                   "true",
                                   "-1 : i32",
                                   "9223372036854775807 : i64",
                                   "1.5 : f32",
                                   "0x7FC00000 : f32",
                                   "\"\"",
                                   "@f",
                                   "f16",
                                   "() -> ()",
                                   "[]",
                                   "[1 : i32]",
                                   "[[\"a\"]]",
                                   "{}",
                                   "{attn.name = 1 : i32}",
                                   "array<i32>",
                                   "array<i32: 1>",
                                   "array<i32: -1, 2, 0, 0, 0, 0, 0, 0, 0>",
                                   "array<i64: 1, 0, 0, 0>",
                                   "array<i8: 1>",
                                   "array<f32: 1.0>",
                                   "array<index: 1, 0, 0, 0>",
                                   "dense<0> : tensor<2xi32>",
                                   "#attn.visibility<causal>",
                                   "#tile.layout<acc>",
                                   "-1",
                                   "?",
                                   "none"};

/// `name = value` in braces or angle brackets of a text.
struct Entry {
  std::string where; ///< the operation or the type, and the name
  size_t begin, value, end;
};

bool isOfName(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$'; }

/// Returns the end of the value that begins at `at`.
size_t endOfValue(const std::string &text, size_t at) {
  int depth = 0;
  for (bool isString = false; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' && text[at - 1] != '\\')
      isString = !isString;
    if (isString)
      continue;
    const bool closes = StringRef(")]}").contains(c) || (c == '>' && text[at - 1] != '-');
    if (depth == 0 && (closes || c == ',' || c == '\n'))
      return at;
    depth += StringRef("([{<").contains(c) ? 1 : closes ? -1 : 0;
  }
  return at;
}

std::vector<Entry> entriesOf(const std::string &text) {
  std::vector<Entry> entries;
  std::string operation;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const size_t end = text.find('"', i + 1);
      if (end != std::string::npos && text[end + 1] == '(')
        operation = text.substr(i + 1, end - i - 1);
      continue;
    }
    if (text.compare(i, 3, " = ") != 0 || i == 0)
      continue;
    size_t begin = i;
    while (begin > 0 && isOfName(text[begin - 1]))
      --begin;
    if (begin == i || begin == 0 || !StringRef("{< ").contains(text[begin - 1]))
      continue; // a result or an alias
    if (text[begin - 1] == ' ' && (begin < 2 || text[begin - 2] != ','))
      continue;
    entries.push_back(
        {operation + " " + text.substr(begin, i - begin), begin, i + 3, endOfValue(text, i + 3)});
  }
  return entries;
}

/// Reads the text and prints the result: in generic form if it is refused, because diagnostics print that.
bool survives(const std::string &text) {
  llvm::PrettyStackTraceString crash(text.c_str());
  const std::unique_ptr<MLIRContext> context = texts::makeContext();
  int errors = 0;
  OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors);
  EXPECT_NE(bool(module), errors > 0) << text;
  if (!module)
    return false;
  const std::string printed = texts::print(*module);
  EXPECT_TRUE(texts::parse(*context, printed, errors)) << text << "\nprints as\n" << printed;
  return true;
}

/// Returns all valid texts, in generic form.
const std::vector<std::string> &genericTexts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> generic;
    for (const std::string &text : texts::all()) {
      const std::unique_ptr<MLIRContext> context = texts::makeContext();
      int errors = 0;
      if (OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors)) {
        llvm::raw_string_ostream stream(generic.emplace_back());
        module->print(stream, OpPrintingFlags().printGenericOpForm());
      }
    }
    return generic;
  }();
  return all;
}

/// Returns the number of samples of one kind to change.
int samples() {
  const char *full = getenv("ATTN_FULL");
  return full && *full ? 20 : 1;
}

TEST(GenericForm, EveryAttributeMissingOrAnother) {
  ASSERT_GT(genericTexts().size(), 50u);
  std::map<std::string, int> seen;
  int tried = 0, refused = 0;
  for (const std::string &text : genericTexts()) {
    for (const Entry &entry : entriesOf(text)) {
      if (++seen[entry.where] > samples())
        continue;
      const bool isFirst = text[entry.begin - 1] != ' ';
      const bool isFollowed = text[entry.end] == ',';
      std::string without = text;
      without.erase(isFirst ? entry.begin : entry.begin - 2,
                    isFirst ? entry.end - entry.begin + (isFollowed ? 2 : 0) : entry.end - entry.begin + 2);
      refused += !survives(without);
      for (const char *other : kOthers) {
        if (StringRef(entry.where).ends_with("sym_name") && StringRef(other) == "\"\"")
          continue; // MLIR accepts symbols without a name, and prints text that it does not read
        std::string changed = text;
        changed.replace(entry.value, entry.end - entry.value, other);
        refused += !survives(changed);
      }
      tried += 1 + std::size(kOthers);
    }
  }
  EXPECT_GT(seen.size(), 150u);
  EXPECT_GT(refused, tried / 2);
  EXPECT_LT(refused, tried);
}

/// Verifies and prints an operation with arbitrary contents.
bool survives(ModuleOp module, const std::string &what) {
  llvm::PrettyStackTraceString crash(what.c_str());
  bool said = false;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    said |= !diagnostic.str().empty();
    return success();
  });
  const bool valid = succeeded(verify(module));
  EXPECT_NE(valid, said) << what;
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (valid)
    module.print(stream);
  else
    module.print(stream, OpPrintingFlags().printGenericOpForm());
  return valid;
}

using Change = std::function<void(Operation *)>;

/// Returns possible faults of an operation beside its attributes. Types are those of its own module and some
/// others.
std::vector<std::pair<std::string, Change>> changesOf(Operation *operation, ArrayRef<Type> types) {
  std::vector<std::pair<std::string, Change>> changes;
  const auto add = [&](const std::string &what, Change change) {
    changes.emplace_back(operation->getName().getStringRef().str() + ": " + what, std::move(change));
  };
  for (unsigned i = 0; i < operation->getNumOperands(); ++i) {
    add("operand " + std::to_string(i) + " erased", [=](Operation *op) { op->eraseOperand(i); });
    add("operand " + std::to_string(i) + " twice",
        [=](Operation *op) { op->insertOperands(i, op->getOperand(i)); });
    for (Type type : types)
      add("operand " + std::to_string(i) + " of another type", [=](Operation *op) {
        OpBuilder builder(op);
        auto made = UnrealizedConversionCastOp::create(builder, op->getLoc(), type, ValueRange());
        op->setOperand(i, made.getResult(0));
      });
  }
  for (unsigned i = 0; i < operation->getNumResults(); ++i)
    for (Type type : types)
      add("result " + std::to_string(i) + " of another type",
          [=](Operation *op) { op->getResult(i).setType(type); });
  for (unsigned i = 0; i < operation->getNumRegions(); ++i) {
    const std::string region = "region " + std::to_string(i);
    add(region + " empty", [=](Operation *op) {
      op->getRegion(i).dropAllReferences();
      op->getRegion(i).getBlocks().clear();
    });
    add(region + " of one empty block", [=](Operation *op) {
      op->getRegion(i).dropAllReferences();
      op->getRegion(i).getBlocks().clear();
      op->getRegion(i).emplaceBlock();
    });
    add(region + " of two blocks", [=](Operation *op) { op->getRegion(i).emplaceBlock(); });
    if (operation->getRegion(i).empty())
      continue;
    add(region + " without terminator", [=](Operation *op) {
      Block &block = op->getRegion(i).front();
      if (!block.empty())
        block.back().erase();
    });
    add(region + " with one more argument",
        [=](Operation *op) { op->getRegion(i).front().addArgument(types.front(), op->getLoc()); });
    for (unsigned j = 0; j < operation->getRegion(i).front().getNumArguments(); ++j)
      for (Type type : types)
        add(region + ", argument " + std::to_string(j) + " of another type",
            [=](Operation *op) { op->getRegion(i).front().getArgument(j).setType(type); });
  }
  return changes;
}

Operation *nth(ModuleOp module, unsigned n) {
  Operation *found = nullptr;
  module->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (n-- != 0)
      return WalkResult::advance();
    found = op;
    return WalkResult::interrupt();
  });
  return found;
}

/// Returns some types of a text, and some that no operation here takes.
SmallVector<Type> typesIn(ModuleOp module) {
  llvm::SetVector<Type> types;
  Builder builder(module.getContext());
  types.insert(builder.getI32Type());
  types.insert(builder.getNoneType());
  types.insert(UnrankedTensorType::get(builder.getF32Type()));
  types.insert(RankedTensorType::get({}, builder.getF32Type()));
  types.insert(RankedTensorType::get({ShapedType::kDynamic, 0, 8}, builder.getF16Type()));
  module->walk([&](Operation *op) {
    types.insert(op->getResultTypes().begin(), op->getResultTypes().end());
    for (Region &region : op->getRegions())
      if (!region.empty())
        types.insert(region.front().getArgumentTypes().begin(), region.front().getArgumentTypes().end());
  });
  SmallVector<Type> some(types.begin(), types.end());
  some.truncate(std::min<size_t>(some.size(), 12));
  return some;
}

TEST(GenericForm, EveryOperandResultAndRegionMissingOrAnother) {
  std::map<std::string, int> seen;
  int tried = 0, refused = 0;
  for (const std::string &text : genericTexts()) {
    const std::unique_ptr<MLIRContext> context = texts::makeContext();
    int errors = 0;
    OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors);
    ASSERT_TRUE(module) << text;
    const SmallVector<Type> types = typesIn(*module);
    unsigned count = 0;
    module->walk([&](Operation *) { ++count; });
    for (unsigned i = 1; i < count; ++i) { // the first is the module
      Operation *operation = nth(*module, i);
      if (++seen[operation->getName().getStringRef().str()] > 2 * samples())
        continue;
      for (const auto &[what, change] : changesOf(operation, types)) {
        OwningOpRef<ModuleOp> changed = module->clone();
        change(nth(*changed, i));
        refused += !survives(*changed, what + "\n" + text);
        ++tried;
      }
    }
  }
  EXPECT_GT(seen.size(), 90u);
  EXPECT_GT(refused, tried / 2);
  EXPECT_LT(refused, tried);
}

} // namespace

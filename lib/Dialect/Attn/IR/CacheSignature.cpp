//===- CacheSignature.cpp - The tensors of a cache function ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A function of this kind holds only one operation: the operation's effect on memory is the function's whole
// effect.
//
//===----------------------------------------------------------------------===//
#include "CacheSignature.h"

#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Stores.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::attn;

namespace {
class CacheReader {
public:
  explicit CacheReader(func::FuncOp func) : func(func) {}

  FailureOr<Signature> read() {
    if (func.isExternal() || !func.getBody().hasOneBlock())
      return func.emitOpError("expected a body of one block");
    for (Operation &op : func.front().without_terminator()) {
      std::optional<RowCopy> found = rowCopyOf(&op);
      if (!found || copy)
        return op.emitOpError("expected one operation on a cache per function and nothing beside it, got ")
               << (found ? "a second" : "another operation");
      copy = found;
    }
    for (BlockArgument argument : func.getArguments())
      if (failed(readArgument(argument)))
        return failure();
    const Prologue &prologue = copy->prologue;
    for (auto [value, what] : {std::pair(copy->cache, "cache"), std::pair(copy->into, "cache"),
                               std::pair(copy->from, "list of slots"), std::pair(copy->to, "list of slots"),
                               std::pair(copy->status, "status"), std::pair(prologue.q, "queries"),
                               std::pair(prologue.kNorm, "weights"), std::pair(prologue.qNorm, "weights"),
                               std::pair(prologue.cos, "cosines"), std::pair(prologue.sin, "sines"),
                               std::pair(prologue.positions, "positions")})
      if (value && !isa<BlockArgument>(value))
        return copy->op->emitOpError("expected the ") << what << " to be an argument of the function";
    if (copy->into &&
        cast<BlockArgument>(copy->into).getArgNumber() < cast<BlockArgument>(copy->cache).getArgNumber())
      return copy->op->emitOpError("expected the cache that is read before the cache that is written");
    auto results = cast<func::ReturnOp>(func.front().getTerminator()).getOperands();
    if (!llvm::equal(results, copy->op->getResults()))
      return func.emitOpError("expected the function to return ")
             << (copy->k && copy->from    ? "the keys and values that it gathers"
                 : copy->prologue.rotated ? "the queries that it prepares"
                                          : "nothing: it changes the cache");
    return signature;
  }

private:
  InFlightDiagnostic emitArgumentError(BlockArgument argument) {
    return func.emitOpError("argument ") << argument.getArgNumber() << ": ";
  }

  Role roleOf(Value value) const {
    const Prologue &prologue = copy->prologue;
    if (isCache(value))
      return Role::KV;
    if (value == copy->k || value == copy->v || value == prologue.q)
      return Role::Rows;
    if (llvm::is_contained({prologue.kNorm, prologue.qNorm, prologue.cos, prologue.sin}, value))
      return Role::Tensor;
    return value == copy->status ? Role::Status : Role::Slots;
  }
  bool isCache(Value value) const { return value == copy->cache || value == copy->into; }
  /// Returns the required name of a list or of rows, after their tensors; empty for a cache, which may have
  /// any name.
  StringRef nameOf(Value value) const {
    bool both = copy->from && copy->to;
    return value == copy->k        ? "k"
           : value == copy->v      ? "v"
           : value == copy->from   ? (both ? "from" : "slots")
           : value == copy->to     ? (both ? "to" : "slots")
           : value == copy->status ? "status"
                                   : nameOf(copy->prologue, value);
  }
  static StringRef nameOf(const Prologue &prologue, Value value) {
    return value == prologue.q           ? "q"
           : value == prologue.kNorm     ? "k_norm"
           : value == prologue.qNorm     ? "q_norm"
           : value == prologue.cos       ? "cos"
           : value == prologue.sin       ? "sin"
           : value == prologue.positions ? "positions"
                                         : "";
  }
  /// Returns the default names of their dynamic dimensions. Each of two caches has its own number of slots.
  std::vector<std::string> dimsOf(Value value, StringRef name) const {
    if (value == copy->status)
      return {};
    const Prologue &prologue = copy->prologue;
    if (value == copy->from || value == copy->to || value == prologue.positions)
      return {"rows"};
    if (value == prologue.cos || value == prologue.sin)
      return {"table_rows"};
    if (value == prologue.kNorm || value == prologue.qNorm)
      return {"layers"};
    if (!isCache(value))
      return {"layers", "rows"};
    std::string slots(rt::sizeName(*storeOf(cast<KVType>(value.getType())).slotDims().front().size));
    return {"layers", value == copy->into ? (name + "_" + slots).str() : slots};
  }

  LogicalResult readArgument(BlockArgument value) {
    if (!llvm::is_contained(copy->op->getOperands(), value))
      return emitArgumentError(value) << "expected every argument to be used by the " << copy->name();
    if (llvm::count(copy->op->getOperands(), value) > 1)
      return emitArgumentError(value)
             << "expected each operand of the " << copy->name() << " to be a separate argument";
    Argument argument;
    argument.index = value.getArgNumber();
    argument.type = value.getType();
    bool cache = isCache(value);
    argument.role = roleOf(value);

    StringRef fixed = nameOf(value);
    auto name = func.getArgAttrOfType<StringAttr>(argument.index, "attn.name");
    if (!name)
      return emitArgumentError(value)
             << "expected the attribute attn.name, as in {attn.name = \"" << (cache ? "kv" : fixed) << "\"}";
    if (!cache && name != fixed)
      return emitArgumentError(value) << "expected the " << stringifyRole(argument.role) << " to be named \""
                                      << fixed << "\", got \"" << name.getValue() << "\"";
    static constexpr StringLiteral kReserved[] = {"k",      "v",         "slots",  "from",   "to",
                                                  "q",      "row_count", "layers", "status", "rotated",
                                                  "k_norm", "q_norm",    "cos",    "sin",    "positions"};
    if (cache && (llvm::is_contained(kReserved, name.getValue()) || name.getValue().contains('.')))
      return emitArgumentError(value)
             << "expected a name that is not reserved and has no point, got \"" << name.getValue() << "\"";
    argument.name = name.str();

    llvm::append_range(argument.dims, dimsOf(value, name.getValue()));
    if (auto dims = func.getArgAttrOfType<ArrayAttr>(argument.index, "attn.dims")) {
      if (dims.size() != argument.dims.size())
        return emitArgumentError(value)
               << "expected attn.dims to name " << argument.dims.size() << " dynamic dimensions (as in "
               << llvm::join(argument.dims, ", ") << "), got " << dims.size();
      argument.dims.clear();
      for (StringAttr dim : dims.getAsRange<StringAttr>())
        argument.dims.push_back(dim.str());
    }
    signature.arguments.push_back(std::move(argument));
    return success();
  }

  func::FuncOp func;
  std::optional<RowCopy> copy;
  Signature signature;
};
} // namespace

FailureOr<Signature> mlir::attn::detail::readCacheSignature(func::FuncOp func) {
  return CacheReader(func).read();
}

//===- Signature.cpp - The tensors of a function --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CacheSignature.h"

#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"

#include "llvm/ADT/TypeSwitch.h"

#include <array>

using namespace mlir;
using namespace mlir::attn;

StringRef mlir::attn::stringifyRole(Role role) {
  switch (role) {
  case Role::Query:
    return "query";
  case Role::KV:
    return "kv";
  case Role::Sinks:
    return "sink";
  case Role::Tensor:
    return "tensor";
  case Role::Classes:
    return "classes";
  case Role::Rows:
    return "rows";
  case Role::Slots:
    return "slots";
  case Role::Status:
    return "status";
  case Role::Pages:
    return "pages";
  case Role::Gate:
    return "gate";
  case Role::OutputScale:
    return "output_scale";
  }
  llvm_unreachable("unknown role");
}

const Argument *Signature::find(StringRef name) const {
  auto *it = llvm::find_if(arguments, [&](const Argument &argument) { return argument.name == name; });
  return it == arguments.end() ? nullptr : it;
}

const Argument &Signature::query() const {
  return *llvm::find_if(arguments, [](const Argument &argument) { return argument.role == Role::Query; });
}

/// Whether `first` is a prefix of `last`: equal except for the regions after the first.
static bool beginsWith(AttendOp last, AttendOp first) {
  return first.getRegions().size() == 1 && last.getRegions().size() > 1 &&
         first.getQuery() == last.getQuery() && first.getRegions()[0] == last.getRegions()[0] &&
         first.getRegionVisibility(0) == last.getRegionVisibility(0) &&
         first.getScaleOrDefault() == last.getScaleOrDefault() && first.getLse() && last.getLse() &&
         llvm::none_of(std::array{first, last}, [](AttendOp attend) {
           return attend.getSinks() || attend.getGate() || attend.getOutputScale() ||
                  attend.getOutputScales() || attend.getClasses() || !attend.getScore().empty();
         });
}

FailureOr<Attends> mlir::attn::findAttends(func::FuncOp func) {
  SmallVector<AttendOp> attends;
  func.walk([&](AttendOp attend) { attends.push_back(attend); });
  if (attends.size() == 1)
    return Attends{attends.front(), {}};
  if (attends.size() == 2) {
    for (auto [last, first] : {std::pair(attends[0], attends[1]), std::pair(attends[1], attends[0])})
      if (beginsWith(last, first))
        return Attends{last, first};
    return attends[1].emitOpError("expected one attention per function, or two, one of them over only the "
                                  "first region of the "
                                  "other: equal query, scale and visibility, an LSE of both, and neither "
                                  "sinks nor a gate nor an output scale nor head "
                                  "classes nor a score region");
  }
  InFlightDiagnostic error = func.emitOpError("expected exactly one attn.attend, got ") << attends.size();
  for (AttendOp attend : attends)
    error.attachNote(attend.getLoc()) << "here";
  return failure();
}

namespace {
class Reader {
public:
  explicit Reader(func::FuncOp func) : func(func) {}

  FailureOr<Signature> read() {
    if (func.isExternal() || !func.getBody().hasOneBlock())
      return func.emitOpError("expected a body of one block");
    if (failed(readUses()))
      return failure();
    for (auto [value, what] : {std::pair(query, "query"), std::pair(output, "output")})
      if (!value)
        return func.emitOpError("expected an attention operation, got no ") << what;
    auto argument = dyn_cast<BlockArgument>(query);
    if (!argument || argument.getOwner() != &func.front())
      return func.emitOpError("expected the query to be an argument of the function");
    for (BlockArgument argument : func.getArguments())
      if (failed(readArgument(argument)))
        return failure();
    if (const Argument *argument = gate ? signature.find("gate") : nullptr;
        argument && argument->dims != signature.query().dims)
      return func.emitOpError("expected attn.dims of the gate to be those of the query, \"")
             << signature.query().dims.front() << "\", got \"" << argument->dims.front() << "\"";
    if (failed(readResults()))
      return failure();
    return signature;
  }

private:
  /// Finds the query, the sink logits and the results.
  LogicalResult readUses() {
    LogicalResult result = success();
    auto set = [&](Operation *op, Value &slot, Value value, StringRef what) {
      if (value && slot && slot != value)
        result = op->emitOpError("expected one ") << what << " per function, got a second";
      slot = value ? value : slot;
    };
    AttendOp firstAttend;
    if (SmallVector<AttendOp> attends(func.getOps<AttendOp>()); attends.size() > 1) {
      FailureOr<Attends> found = findAttends(func);
      if (failed(found))
        return failure();
      firstAttend = found->first;
    }
    func.walk([&](Operation *op) {
      TypeSwitch<Operation *>(op)
          .Case([&](AttendOp attend) {
            if (attend == firstAttend)
              return takeFirst(attend.getOutput(), attend.getLse());
            set(op, query, attend.getQuery(), "query");
            set(op, classes, attend.getClasses(), "assignment of heads to classes");
            set(op, sinks, attend.getSinks(), "sink_logits");
            set(op, gate, attend.getGate(), "gate");
            set(op, outputScale, attend.getOutputScale(), "output_scale");
            set(op, output, attend.getOutput(), "attention");
            set(op, lse, attend.getLse(), "attention");
            set(op, scales, attend.getOutputScales(), "attention");
          })
          .Case([&](InitOp init) {
            set(op, query, init.getQuery(), "query");
            set(op, sinks, init.getSinks(), "sink_logits");
          })
          .Case([&](UpdateOp update) {
            set(op, query, update.getQuery(), "query");
            set(op, classes, update.getClasses(), "assignment of heads to classes");
          })
          .Case([&](FinishOp finish) {
            if (firstAttr.isOn(finish))
              return takeFirst(finish.getOutput(), finish.getLse());
            set(op, output, finish.getOutput(), "attention");
            set(op, lse, finish.getLse(), "attention");
            set(op, scales, finish.getOutputScales(), "attention");
            set(op, gate, finish.getGate(), "gate");
            set(op, outputScale, finish.getOutputScale(), "output_scale");
          });
    });
    return result;
  }

  void takeFirst(Value output, Value lse) { firstOutput = output, firstLse = lse; }

  InFlightDiagnostic emitArgumentError(BlockArgument argument) {
    return func.emitOpError("argument ") << argument.getArgNumber() << ": ";
  }

  LogicalResult readArgument(BlockArgument value) {
    Argument argument;
    argument.index = value.getArgNumber();
    argument.type = value.getType();
    argument.role = value == query                 ? Role::Query
                    : isa<KVType>(value.getType()) ? Role::KV
                    : value == sinks               ? Role::Sinks
                    : value == classes             ? Role::Classes
                    : value == gate                ? Role::Gate
                    : value == outputScale         ? Role::OutputScale
                                                   : Role::Tensor;
    auto name = func.getArgAttrOfType<StringAttr>(argument.index, "attn.name");
    // If normalization made all classes equal, nothing uses the tensor that assigns heads to them.
    if (name && name == exampleName(Role::Classes) && value.use_empty() &&
        getElementTypeOrSelf(argument.type).isInteger(32))
      argument.role = Role::Classes;
    if (!name)
      return emitArgumentError(value) << "expected the attribute attn.name, as in {attn.name = \""
                                      << exampleName(argument.role) << "\"}";
    argument.name = name.str();
    if (failed(checkName(value, argument)))
      return failure();
    if (argument.role == Role::Tensor)
      if (auto type = dyn_cast<RankedTensorType>(argument.type); !type || !type.getElementType().isF32())
        return emitArgumentError(value)
               << "expected a tensor of f32, a KV operand or the query, got " << argument.type;

    size_t dynamic = argument.role == Role::KV ? 2 : 0;
    if (auto type = dyn_cast<RankedTensorType>(argument.type))
      dynamic = type.getNumDynamicDims();
    auto dims = func.getArgAttrOfType<ArrayAttr>(argument.index, "attn.dims");
    if (!dims && (argument.role == Role::Query || argument.role == Role::Gate))
      argument.dims = {"rows"};
    else if (!dims && argument.role == Role::KV)
      argument.dims = {"batch", "kv_len"};
    else if (dims)
      for (StringAttr dim : dims.getAsRange<StringAttr>())
        argument.dims.push_back(dim.str());
    if (argument.dims.size() != dynamic)
      return emitArgumentError(value) << "expected attn.dims to name " << dynamic << " dynamic dimensions"
                                      << (argument.role == Role::KV ? " (instances and tokens)" : "")
                                      << ", got " << argument.dims.size();
    signature.arguments.push_back(std::move(argument));
    return success();
  }

  static StringRef exampleName(Role role) {
    switch (role) {
    case Role::Query:
      return "q";
    case Role::KV:
      return "kv";
    case Role::Sinks:
      return "sink_logits";
    case Role::Tensor:
      return "bias";
    case Role::Classes:
      return "classes";
    case Role::Gate:
      return "gate";
    case Role::OutputScale:
      return "output_scale";
    case Role::Rows:
    case Role::Slots:
    case Role::Status:
    case Role::Pages:
      break; // only in functions with operations on a cache
    }
    llvm_unreachable("unknown role");
  }

  LogicalResult checkName(BlockArgument value, const Argument &argument) {
    // The tensors of these roles have fixed names in files and kernels.
    bool fixed = llvm::is_contained({Role::Query, Role::Sinks, Role::Classes, Role::Gate, Role::OutputScale},
                                    argument.role);
    if (fixed && argument.name != exampleName(argument.role))
      return emitArgumentError(value) << "expected the " << stringifyRole(argument.role) << " to be named \""
                                      << exampleName(argument.role) << "\", got \"" << argument.name << "\"";
    static constexpr StringLiteral kReserved[] = {
        "q", "q_start", "q_pos", "o", "lse", "classes", "ordinal_heads", "sink_logits", "plan", "partial"};
    static constexpr StringLiteral kOfBackward[] = {"do", "dlse", "dq", "delta"};
    bool taken =
        llvm::is_contained(kReserved, argument.name) || (scales && argument.name == outputScales) ||
        (firstOutput && llvm::is_contained({mlir::attn::firstOutput, mlir::attn::firstLse}, argument.name)) ||
        (backwardAttr.isOn(func) && llvm::is_contained(kOfBackward, argument.name));
    if (!fixed && (taken || StringRef(argument.name).contains('.')))
      return emitArgumentError(value)
             << "expected a name that is not reserved and has no point, got \"" << argument.name << "\"";
    if (const Argument *other = signature.find(argument.name))
      return emitArgumentError(value) << "expected a name of its own, got \"" << argument.name
                                      << "\", the name of argument " << other->index;
    return success();
  }

  LogicalResult readResults() {
    auto results = cast<func::ReturnOp>(func.front().getTerminator()).getOperands();
    signature.returnsLse = lse && llvm::is_contained(results, lse);
    signature.returnsFirst = firstOutput != nullptr;
    if (firstOutput) {
      if (!llvm::equal(results, std::array{output, lse, firstOutput, firstLse}))
        return func.emitOpError(
            "expected the function to return the output and the LSE of the attention over all "
            "regions, and then those of the attention over the first region");
      return success();
    }
    SmallVector<Value> expected{output};
    if (signature.returnsLse)
      expected.push_back(lse);
    if (scales)
      expected.push_back(scales);
    if (llvm::equal(results, expected))
      return success();
    if (scales)
      return func.emitOpError(
          "expected the function to return the output, optionally the LSE of its attention, "
          "and then the scales of the output");
    return func.emitOpError("expected the function to return the output and then, optionally, the LSE of its "
                            "attention");
  }

  func::FuncOp func;
  Signature signature;
  Value query, classes, sinks, gate, outputScale, output, lse, scales, firstOutput, firstLse;
};
} // namespace

FailureOr<Signature> mlir::attn::readSignature(func::FuncOp func) {
  if (findPageOp(func))
    return detail::readPageSignature(func);
  return findRowCopy(func) ? detail::readCacheSignature(func) : Reader(func).read();
}

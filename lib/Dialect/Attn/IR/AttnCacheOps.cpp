//===- AttnCacheOps.cpp - Rows into, within and out of a cache ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Stores.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;

static Prologue prologueOf(AppendRowsOp append) {
  Prologue prologue{.q = append.getQ(),
                    .rotated = append.getRotated(),
                    .kNorm = append.getKNorm(),
                    .qNorm = append.getQNorm(),
                    .cos = append.getCos(),
                    .sin = append.getSin(),
                    .positions = append.getPositions(),
                    .first = static_cast<int64_t>(append.getFirst().value_or(0)),
                    .interleaved = append.getInterleaved(),
                    .strided = append.getStrided()};
  if (std::optional<APFloat> epsilon = append.getEpsilon())
    prologue.epsilon = epsilon->convertToFloat();
  return prologue;
}

std::optional<RowCopy> mlir::attn::rowCopyOf(Operation *op) {
  return TypeSwitch<Operation *, std::optional<RowCopy>>(op)
      .Case([&](AppendRowsOp append) {
        return RowCopy{.op = op,
                       .cache = append.getKv(),
                       .to = append.getSlots(),
                       .k = append.getK(),
                       .v = append.getV(),
                       .status = append.getStatus(),
                       .prologue = prologueOf(append)};
      })
      .Case([&](MoveRowsOp move) {
        return RowCopy{.op = op, .cache = move.getKv(), .from = move.getFrom(), .to = move.getTo()};
      })
      .Case([&](GatherRowsOp gather) {
        return RowCopy{.op = op,
                       .cache = gather.getKv(),
                       .from = gather.getSlots(),
                       .k = gather.getK(),
                       .v = gather.getV()};
      })
      .Case([&](RequantizeRowsOp requantize) {
        return RowCopy{.op = op,
                       .cache = requantize.getKv(),
                       .into = requantize.getInto(),
                       .from = requantize.getFrom(),
                       .to = requantize.getTo(),
                       .status = requantize.getStatus()};
      })
      .Default(std::nullopt);
}

std::optional<RowCopy> mlir::attn::findRowCopy(func::FuncOp func) {
  std::optional<RowCopy> found;
  func.walk([&](Operation *op) {
    found = rowCopyOf(op);
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

static LogicalResult verifyCache(Operation *op, KVType type) {
  if (type.getStore() == Store::Dense)
    return op->emitOpError("expected a paged or a packed cache, got ")
           << type << "; dense memory is a packed cache of instances * tokens slots";
  if (type.isOfClass())
    return op->emitOpError("expected a cache with a number of KV heads, got ")
           << type << "; heads = ? is for attentions: give the number of heads of the class";
  if (type.getRagged() && (type.getStore() != Store::Unified || type.getHeads() != 1))
    return op->emitOpError("expected a cache whose slots hold all KV heads, got ")
           << type << "; write each head of a ragged cache as a separate cache with heads = 1";
  return success();
}

/// Verifies rows of keys or of values: in the stored type or, if it is quantized, in 16 bits.
static LogicalResult verifyRows(const RowCopy &copy, StringRef what, Value rows, int64_t dim, Type stored) {
  auto expected = [&](Type element) {
    return RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic, copy.type().getHeads(), dim},
                                 element);
  };
  MLIRContext *context = copy.op->getContext();
  Type half = Float16Type::get(context), bfloat = BFloat16Type::get(context);
  bool codes = isa<QuantizedType>(stored);
  if (!rows || (codes ? rows.getType() == expected(half) || rows.getType() == expected(bfloat)
                      : rows.getType() == expected(stored)))
    return success();
  InFlightDiagnostic error = copy.op->emitOpError("expected ")
                             << what << " by row of a cache of that type to be "
                             << expected(codes ? bfloat : stored);
  if (codes)
    error << ", or of f16";
  return error << ", got " << rows.getType();
}

/// Verifies two caches of equal heads and dims, the second of fewer bits.
static LogicalResult verifyRequantized(const RowCopy &copy) {
  auto into = cast<KVType>(copy.into.getType());
  KVType type = copy.type();
  if (failed(verifyCache(copy.op, into)))
    return failure();
  if (into.getHeads() != type.getHeads() || into.getKeyDim() != type.getKeyDim() ||
      into.getValueDim() != type.getValueDim())
    return copy.op->emitOpError("expected caches of the same heads and dims, got ")
           << type << " and " << into;
  if (type.getLatent() || into.getLatent())
    return copy.op->emitOpError("expected caches with values of their own, got ") << type << " and " << into;
  const rt::Store source = storeOf(type), target = storeOf(into);
  for (auto [what, from, to] : {std::tuple("keys", source.keys.format, target.keys.format),
                                std::tuple("values", source.values.format, target.values.format)})
    if (from != to && (to.isPlain() || to.bits > from.bits))
      return copy.op->emitOpError("expected ")
             << what << " to be requantized to at most as many bits, or to stay unchanged, got "
             << from.text() << " to " << to.text() << "; attn.gather dequantizes";
  return success();
}

static LogicalResult verifyRowCopy(const RowCopy &copy) {
  Operation *op = copy.op;
  KVType type = copy.type();
  if (failed(verifyCache(op, type)) || (copy.into && failed(verifyRequantized(copy))))
    return failure();
  Type i32 = IntegerType::get(op->getContext(), 32);
  auto list = RankedTensorType::get({ShapedType::kDynamic}, i32), one = RankedTensorType::get({1}, i32);
  for (Value slots : {copy.from, copy.to})
    if (slots && slots.getType() != list)
      return op->emitOpError("expected slots to be ") << list << ", got " << slots.getType();
  if (copy.status && copy.status.getType() != one)
    return op->emitOpError("expected the status to be ") << one << ", got " << copy.status.getType();
  auto target = cast<KVType>(copy.written().getType());
  if (copy.status && !isa<QuantizedType>(target.getKey()) && !isa<QuantizedType>(target.getValue()))
    return op->emitOpError("expected a quantized cache with a status, which counts numbers that cannot be "
                           "quantized, got ")
           << target;
  if (failed(verifyRows(copy, "keys", copy.k, type.getKeyDim(), type.getKey())))
    return failure();
  if (copy.k && bool(copy.v) == type.getLatent())
    return op->emitOpError("expected ") << (copy.v ? "keys alone: values of " : "keys and values: those of ")
                                        << type << (copy.v ? " are a part of them" : " lie apart");
  // The lanes of a warp find the scale of one line together.
  constexpr int64_t mostOfWarp = 256;
  auto codes = dyn_cast<QuantizedType>(type.getKey());
  if (copy.k && codes && codes.getPer() == Per::Token && type.getKeyDim() > mostOfWarp)
    return op->emitOpError("expected a scale per tensor or head of lines of more than ")
           << mostOfWarp << " features, got " << codes << "; nearest legal: "
           << QuantizedType::get(op->getContext(), codes.getElement(), Per::Tensor, 0, Type(), 0);
  return verifyRows(copy, "values", copy.v, type.getValueDim(), type.getValue());
}

/// Verifies weights or tables: two axes, the first dynamic, of f32 or of the rows' type.
static LogicalResult verifyTable(AppendRowsOp append, StringRef what, Value table, int64_t columns) {
  Type rows = cast<RankedTensorType>(append.getK().getType()).getElementType();
  auto type = cast<RankedTensorType>(table.getType());
  Type element = type.getElementType();
  if ((element.isF32() || element == rows) &&
      type == RankedTensorType::get({ShapedType::kDynamic, columns}, element))
    return success();
  return append.emitOpError("expected ")
         << what << " to be " << RankedTensorType::get({ShapedType::kDynamic, columns}, rows)
         << ", or of f32, got " << type;
}

static LogicalResult verifyNorm(AppendRowsOp append, int64_t dim, bool latent) {
  if (latent && append.getQNorm())
    return append.emitOpError("expected no weights of queries of latents, which have no norm");
  if (!append.getKNorm())
    return append.getQNorm() ? append.emitOpError("expected weights of queries beside weights of keys")
                             : success();
  if (!latent && bool(append.getQ()) != bool(append.getQNorm()))
    return append.emitOpError("expected weights of queries where there are queries, and only there");
  if (!append.getEpsilon())
    return append.emitOpError("expected an epsilon beside the weights of a norm");
  if (APFloat epsilon = *append.getEpsilon(); !epsilon.isFinite() || epsilon.isNegative())
    return append.emitOpError("expected an epsilon that is finite and at least 0, got ")
           << epsilon.convertToFloat();
  if (failed(verifyTable(append, "the weights of keys", append.getKNorm(), dim)))
    return failure();
  return append.getQNorm() ? verifyTable(append, "the weights of queries", append.getQNorm(), dim)
                           : success();
}

static LogicalResult verifyRotation(AppendRowsOp append, int64_t dim) {
  if (!append.getCos()) {
    if (append.getInterleaved() || append.getFirst())
      return append.emitOpError("expected '")
             << (append.getInterleaved() ? "interleaved" : "from") << "' beside a rotation";
    return success();
  }
  auto cos = dyn_cast<RankedTensorType>(append.getCos().getType());
  if (!cos || cos.getRank() != 2 || cos.isDynamicDim(1) || cos.getDimSize(1) < 1 ||
      2 * cos.getDimSize(1) > dim)
    return append.emitOpError("expected cosines of 1 to ")
           << dim / 2 << " angles for heads of " << dim << " features, got " << append.getCos().getType();
  const int64_t first = append.getFirst().value_or(0), turned = 2 * cos.getDimSize(1), last = dim - turned;
  if (first < 0 || first % 8 || first > last)
    return append.emitOpError("expected ")
           << turned << " rotated features within heads of " << dim << ", from a multiple of 8 on, got from "
           << first << "; nearest legal: " << std::max<int64_t>(0, std::min(first, last) / 8 * 8);
  if (!append.getSin() || !append.getPositions())
    return append.emitOpError("expected sines and positions beside cosines");
  if (append.getSin().getType() != cos)
    return append.emitOpError("expected sines of the cosines' type, ")
           << cos << ", got " << append.getSin().getType();
  auto list = RankedTensorType::get({ShapedType::kDynamic}, IntegerType::get(append.getContext(), 32));
  if (append.getPositions().getType() != list)
    return append.emitOpError("expected positions to be ")
           << list << ", got " << append.getPositions().getType();
  return verifyTable(append, "cosines and sines", append.getCos(), cos.getDimSize(1));
}

static LogicalResult verifyPrologue(AppendRowsOp append) {
  const RowCopy copy = *rowCopyOf(append);
  const KVType type = copy.type();
  const int64_t dim = type.getKeyDim();
  const bool latent = type.getLatent();
  if (failed(verifyNorm(append, latent ? type.getValueDim() : dim, latent)) ||
      failed(verifyRotation(append, dim)))
    return failure();
  if (bool(append.getQ()) != bool(append.getRotated()))
    return append.emitOpError("expected a result where there are queries, and only there");
  if (copy.prologue.changesKeys() && copy.prologue.strided)
    return append.emitOpError("expected no 'strided' beside a norm or a rotation, whose rows have strides");
  if (!copy.prologue.changesKeys() && append.getQ())
    return append.emitOpError("expected a norm or a rotation of the queries");
  if (copy.prologue.isEmpty())
    return success();
  const StringRef what = copy.prologue.strided ? "rows have strides" : "keys are normalized or rotated";
  if (type.getStore() == Store::Unified)
    return append.emitOpError("expected a paged or a packed cache where ")
           << what << ", got " << type
           << "; the pages of a head are a paged cache's, whose strides a launch gives";
  Type rows = cast<RankedTensorType>(append.getK().getType()).getElementType();
  if (!rows.isF16() && !rows.isBF16())
    return append.emitOpError("expected rows of f16 or bf16 where ")
           << what << ", got " << append.getK().getType();
  if (!append.getQ())
    return success();
  if (latent && !append.getCos())
    return append.emitOpError("expected a rotation where there are queries of latents");
  const int64_t queryDim = latent ? 2 * cast<RankedTensorType>(append.getCos().getType()).getDimSize(1) : dim;
  if (latent && queryDim % 8)
    return append.emitOpError("expected queries of latents to have a multiple of 8 rotated features, got ")
           << queryDim;
  auto q = dyn_cast<RankedTensorType>(append.getQ().getType());
  if (!q || q.getRank() != 4 || q.isDynamicDim(2) ||
      q != RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic, q.getDimSize(2), queryDim},
                                 rows))
    return append.emitOpError("expected queries of the keys' ")
           << (latent ? "rotated features" : "dim") << " and type, [layers, rows, q_heads, " << queryDim
           << "], got " << append.getQ().getType();
  if (append.getRotated().getType() != q)
    return append.emitOpError("expected the result to be ") << q << ", got " << append.getRotated().getType();
  return success();
}

LogicalResult AppendRowsOp::verify() {
  return failed(verifyRowCopy(*rowCopyOf(*this))) ? failure() : verifyPrologue(*this);
}
LogicalResult MoveRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult GatherRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult RequantizeRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }

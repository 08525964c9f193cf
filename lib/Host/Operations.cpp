//===- Operations.cpp - NVVM operations -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rewriter.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn::rt;

namespace attn::host {

using rt::host::ShuffleKind;

bool Rewriter::rewriteSpecialRegister(Operation *op) {
  using namespace rt::host;
  int index = llvm::TypeSwitch<Operation *, int>(op)
                  .Case<NVVM::ThreadIdXOp>([](auto) { return TidX; })
                  .Case<NVVM::ThreadIdYOp>([](auto) { return TidY; })
                  .Case<NVVM::ThreadIdZOp>([](auto) { return TidZ; })
                  .Case<NVVM::BlockIdXOp>([](auto) { return CtaidX; })
                  .Case<NVVM::BlockIdYOp>([](auto) { return CtaidY; })
                  .Case<NVVM::BlockIdZOp>([](auto) { return CtaidZ; })
                  .Case<NVVM::BlockDimXOp>([](auto) { return NtidX; })
                  .Case<NVVM::BlockDimYOp>([](auto) { return NtidY; })
                  .Case<NVVM::BlockDimZOp>([](auto) { return NtidZ; })
                  .Case<NVVM::GridDimXOp>([](auto) { return NctaidX; })
                  .Case<NVVM::GridDimYOp>([](auto) { return NctaidY; })
                  .Case<NVVM::GridDimZOp>([](auto) { return NctaidZ; })
                  .Case<NVVM::LaneIdOp>([](auto) { return LaneId; })
                  .Case<NVVM::WarpIdOp>([](auto) { return WarpId; })
                  .Case<NVVM::WarpDimOp>([](auto) { return NumWarps; })
                  .Default([](Operation *) { return -1; });
  if (index < 0)
    return false;
  Value value = laneField(4 * static_cast<uint32_t>(index), i32);
  if (Type type = op->getResult(0).getType(); type != i32)
    value = LLVM::ZExtOp::create(b, loc, type, value);
  replace(op, value);
  return true;
}

llvm::Error Rewriter::rewriteNVVM(Operation *op) {
  if (rewriteSpecialRegister(op))
    return llvm::Error::success();
  auto done = [&](Value result = {}) {
    replace(op, result);
    return llvm::Error::success();
  };
  auto zero = [&] { return constant(0); };
  if (isa<NVVM::Barrier0Op>(op))
    return call("attn_host_barrier", none, {lane, opId(op), zero(), zero()}), done();
  if (auto barrier = dyn_cast<NVVM::BarrierOp>(op)) {
    if (barrier.getReductionOp() || barrier.getNumResults())
      return errorAt(op, "the host device has no barriers that reduce");
    Value id = barrier.getBarrierId() ? barrier.getBarrierId() : zero();
    Value threads = barrier.getNumberOfThreads() ? barrier.getNumberOfThreads() : zero();
    return call("attn_host_barrier", none, {lane, opId(op), id, threads}), done();
  }
  if (auto arrive = dyn_cast<NVVM::BarrierArriveOp>(op)) {
    Value id = arrive.getBarrierId() ? arrive.getBarrierId() : zero();
    return call("attn_host_barrier_arrive", none, {lane, opId(op), id, arrive.getNumberOfThreads()}), done();
  }
  if (auto sync = dyn_cast<NVVM::SyncWarpOp>(op))
    return call("attn_host_warp_sync", none, {lane, opId(op), sync.getMask()}), done();
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
    Value bytes = constant(copy.getSize());
    Value source = copy.getCpSize() ? copy.getCpSize() : bytes;
    return call("attn_host_cp_async", none,
                {lane, opId(op), plainPointer(copy.getDst()), plainPointer(copy.getSrc()), bytes, source}),
           done();
  }
  if (isa<NVVM::CpAsyncCommitGroupOp>(op))
    return call("attn_host_cp_commit", none, {lane}), done();
  if (auto wait = dyn_cast<NVVM::CpAsyncWaitGroupOp>(op))
    return call("attn_host_cp_wait", none, {lane, constant(wait.getN())}), done();
  if (auto matrix = dyn_cast<NVVM::StMatrixOp>(op))
    return rewriteStmatrix(matrix);
  if (auto shuffle = dyn_cast<NVVM::ShflOp>(op))
    return rewriteShuffle(shuffle);
  if (auto permute = dyn_cast<NVVM::PermuteOp>(op))
    return rewritePermute(permute);
  if (auto vote = dyn_cast<NVVM::VoteSyncOp>(op)) {
    Value predicate = LLVM::ZExtOp::create(b, loc, i32, vote.getPred());
    Value result =
        call("attn_host_vote", i32,
             {lane, opId(op), constant(static_cast<uint32_t>(vote.getKind())), vote.getMask(), predicate});
    if (vote.getType() == i1)
      result = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, result, zero());
    return done(result);
  }
  if (isa<NVVM::ConvertF32x2ToF16x2Op, NVVM::ConvertF32x2ToBF16x2Op>(op)) {
    bool half = isa<NVVM::ConvertF32x2ToF16x2Op>(op);
    auto plain = [](auto c) {
      return !c.getRandomBits() && !c.getRelu() && c.getSat() == NVVM::SaturationMode::NONE &&
             (c.getRnd() == NVVM::FPRoundingMode::RN || c.getRnd() == NVVM::FPRoundingMode::NONE);
    };
    if (!(half ? plain(cast<NVVM::ConvertF32x2ToF16x2Op>(op))
               : plain(cast<NVVM::ConvertF32x2ToBF16x2Op>(op))))
      return errorAt(op, "the host device converts only by rounding to nearest even");
    Value packed = call(half ? "attn_host_pack_f16" : "attn_host_pack_bf16", i32,
                        {op->getOperand(0), op->getOperand(1)});
    return done(cast(packed, op->getResult(0).getType()));
  }
  if (auto widen = dyn_cast<NVVM::ConvertF8x2ToF16x2Op>(op)) {
    if (widen.getRelu() || !isa<Float8E4M3FNType>(widen.getSrcType()))
      return errorAt(op, "the host device converts pairs of f8E4M3FN to f16, without relu, and no others");
    Value codes = LLVM::ZExtOp::create(b, loc, i32, cast(widen.getSrc(), b.getI16Type()));
    return done(cast(call("attn_host_widen_e4m3", i32, codes), op->getResult(0).getType()));
  }
  if (auto narrow = dyn_cast<NVVM::ConvertF32x2ToF8x2Op>(op)) {
    if (narrow.getRelu() || !isa<Float8E4M3FNType>(narrow.getDstTy()) ||
        narrow.getRnd() != NVVM::FPRoundingMode::RN || narrow.getSat() != NVVM::SaturationMode::SATFINITE)
      return errorAt(op, "the host device converts pairs of f32 to f8E4M3FN by rounding to nearest even and "
                         "clamping, and no others");
    Value codes = call("attn_host_narrow_e4m3", i32, {narrow.getA(), narrow.getB()});
    return done(cast(LLVM::TruncOp::create(b, loc, b.getI16Type(), codes), op->getResult(0).getType()));
  }
  if (isa<NVVM::RcpApproxFtzF32Op>(op))
    return done(call("attn_host_rcp", f32, {op->getOperand(0)}));
  llvm::Expected<bool> rewritten = rewriteAsync(op);
  if (!rewritten)
    return rewritten.takeError();
  if (*rewritten)
    return llvm::Error::success();
  return errorAt(op, "the host device cannot execute '" + op->getName().getStringRef() + "'");
}

llvm::Error checkMatrix(Operation *op, NVVM::LdStMatrixEltType type, NVVM::LdStMatrixShapeAttr shape) {
  if (type == NVVM::LdStMatrixEltType::B16 && shape.getM() == 8 && shape.getN() == 8)
    return llvm::Error::success();
  return errorAt(op,
                 "the host device executes '" + op->getName().getStringRef() + "' on m8n8 b16 matrices only");
}

llvm::Error Rewriter::rewriteStmatrix(NVVM::StMatrixOp op) {
  if (llvm::Error error = checkMatrix(op, op.getEltType(), op.getShape()))
    return error;
  unsigned word = rt::host::kMatrixData;
  for (Value v : op.getSources())
    put(word++, v);
  call("attn_host_stmatrix", none,
       {lane, opId(op), plainPointer(op.getPtr()), constant(op.getSources().size()),
        constant(op.getLayout() == NVVM::MMALayout::col)});
  replace(op, {});
  return llvm::Error::success();
}

/// Rewrites a permutation: each byte of the result is one of the eight bytes of both operands.
llvm::Error Rewriter::rewritePermute(NVVM::PermuteOp op) {
  if (op.getMode() != NVVM::PermuteMode::DEFAULT || !op.getHi())
    return errorAt(op, "the host device permutes the bytes of two registers in the default mode only");
  llvm::APInt selector;
  if (!matchPattern(op.getSelector(), m_ConstantInt(&selector)) || (selector & 0x8888) != 0) {
    replace(op, call("attn_host_permute", i32, {op.getLo(), op.getHi(), op.getSelector()}));
    return llvm::Error::success();
  }
  SmallVector<int32_t, 4> which;
  for (unsigned i = 0; i < 4; ++i)
    which.push_back(static_cast<int32_t>(selector.extractBitsAsZExtValue(3, 4 * i)));
  Type four = VectorType::get(4, b.getI8Type());
  replace(op,
          cast(LLVM::ShuffleVectorOp::create(b, loc, cast(op.getLo(), four), cast(op.getHi(), four), which),
               i32));
  return llvm::Error::success();
}

llvm::Error Rewriter::rewriteShuffle(NVVM::ShflOp op) {
  ShuffleKind kind = ShuffleKind::Bfly;
  switch (op.getKind()) {
  case NVVM::ShflKind::bfly:
    kind = ShuffleKind::Bfly;
    break;
  case NVVM::ShflKind::up:
    kind = ShuffleKind::Up;
    break;
  case NVVM::ShflKind::down:
    kind = ShuffleKind::Down;
    break;
  case NVVM::ShflKind::idx:
    kind = ShuffleKind::Idx;
    break;
  }
  Value both = call("attn_host_shuffle", i64,
                    {lane, opId(op), constant(static_cast<uint32_t>(kind)), op.getThreadMask(),
                     cast(op.getVal(), i32), op.getOffset(), op.getMaskAndClamp()});
  Value value = cast(LLVM::TruncOp::create(b, loc, i32, both), op.getVal().getType());
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(op.getType())) {
    Value shift = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(32));
    Value valid = LLVM::TruncOp::create(b, loc, i1, LLVM::LShrOp::create(b, loc, both, shift));
    Value pair = LLVM::PoisonOp::create(b, loc, structure);
    pair = LLVM::InsertValueOp::create(b, loc, pair, value, ArrayRef<int64_t>{0});
    value = LLVM::InsertValueOp::create(b, loc, pair, valid, ArrayRef<int64_t>{1});
  }
  replace(op, value);
  return llvm::Error::success();
}

} // namespace attn::host

//===- Programs.cpp - Emitting programs of the warp -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Batch.h"

using namespace mlir;
using namespace attn;

namespace attn::host {

static llvm::Error checkMma(NVVM::MmaOp op) {
  auto shape = op.getShape();
  std::optional<NVVM::MMATypes> a = op.getMultiplicandAPtxType(), b = op.getMultiplicandBPtxType();
  auto result = dyn_cast<LLVM::LLVMStructType>(op.getType());
  auto isF32 = [](Type t) { return t.isF32(); };
  bool known = shape.getM() == 16 && shape.getN() == 8 && shape.getK() == 16 && a && a == b &&
               (*a == NVVM::MMATypes::f16 || *a == NVVM::MMATypes::bf16) &&
               op.getLayoutA() == NVVM::MMALayout::row && op.getLayoutB() == NVVM::MMALayout::col &&
               op.getOperandA().size() == 4 && op.getOperandB().size() == 2 && op.getOperandC().size() == 4 &&
               llvm::all_of(op.getOperandC().getTypes(), isF32) && result && result.getBody().size() == 4 &&
               llvm::all_of(result.getBody(), isF32);
  if (known)
    return llvm::Error::success();
  return errorAt(
      op, "the host device executes mma.sync m16n8k16 of f16 or bf16 with f32 accumulators, and no other");
}

llvm::Error Rewriter::batchMatrices(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  Batcher batch(layout.opIds);
  for (Operation *op : ops) {
    if (auto mma = dyn_cast<NVVM::MmaOp>(op)) {
      if (llvm::Error error = checkMma(mma))
        return error;
    } else if (auto matrix = dyn_cast<NVVM::LdMatrixOp>(op)) {
      if (llvm::Error error = checkMatrix(op, matrix.getEltType(), matrix.getShape()))
        return error;
    } else {
      if (Batcher::isPure(op)) {
        batch.follow(op);
      } else if (!batch.steps.empty()) {
        emitProgram(batch);
        batch = Batcher(layout.opIds);
      }
      continue;
    }
    if (!batch.fits(op)) {
      emitProgram(batch);
      batch = Batcher(layout.opIds);
    }
    batch.add(op);
  }
  return llvm::Error::success(); // a terminator has ended the last run
}

void Rewriter::emitProgram(Batcher &batch) {
  rt::host::WarpProgram program;
  llvm::DenseMap<Value, unsigned> inputs;
  llvm::DenseMap<Batcher::Wire, unsigned> outputs;
  // Whole structs are needed if anything but an extraction uses them.
  llvm::DenseSet<Batcher::Wire> exported;
  SmallVector<Operation *> wantedStructs, wantedParts;
  for (Operation *op : batch.steps)
    if (isa<LLVM::LLVMStructType>(op->getResult(0).getType()) && batch.isExported(op->getResult(0))) {
      wantedStructs.push_back(op);
      auto type = mlir::cast<LLVM::LLVMStructType>(op->getResult(0).getType());
      for (unsigned i = 0, e = type.getBody().size(); i < e; ++i)
        exported.insert({op, i});
    }
  for (auto [value, wire] : batch.wires)
    if (batch.isExported(value))
      exported.insert(wire);
  batch.assignWords(program, inputs, outputs, exported);

  Operation *last = batch.steps.back();
  b.setInsertionPoint(last);
  loc = last->getLoc();
  SmallVector<std::pair<unsigned, Value>> stores;
  for (auto [value, word] : inputs)
    stores.push_back({word, value});
  llvm::sort(stores, [](auto &x, auto &y) { return x.first < y.first; });
  Value window;
  for (auto [word, value] : stores) {
    if (isa<LLVM::LLVMPointerType>(value.getType())) {
      if (!window)
        window = LLVM::PtrToIntOp::create(b, loc, i64, laneField(rt::host::kLaneSharedOffset, ptr));
      Value address = LLVM::PtrToIntOp::create(b, loc, i64, value);
      value = LLVM::TruncOp::create(b, loc, i32, LLVM::SubOp::create(b, loc, address, window));
    }
    put(word, value);
  }
  call("attn_host_program", none, {lane, opId(batch.steps.front()), constant(programs.size())});
  programs.push_back(std::move(program));

  for (Operation *op : wantedStructs) {
    auto type = mlir::cast<LLVM::LLVMStructType>(op->getResult(0).getType());
    Value value = LLVM::PoisonOp::create(b, loc, type);
    for (auto [i, element] : llvm::enumerate(type.getBody()))
      value = LLVM::InsertValueOp::create(b, loc, value, get(outputs.lookup({op, unsigned(i)}), element),
                                          ArrayRef<int64_t>{int64_t(i)});
    op->getResult(0).replaceUsesWithIf(value, [&](OpOperand &use) {
      return !llvm::is_contained(batch.steps, use.getOwner()) &&
             !llvm::is_contained(batch.extracts, use.getOwner());
    });
  }
  auto exportValue = [&](Value value) {
    if (!batch.isExported(value))
      return;
    Value loaded = get(outputs.lookup(batch.wires.lookup(value)), value.getType());
    value.replaceUsesWithIf(loaded, [&](OpOperand &use) {
      return !llvm::is_contained(batch.steps, use.getOwner()) &&
             !llvm::is_contained(batch.extracts, use.getOwner());
    });
  };
  for (Operation *op : batch.extracts)
    exportValue(op->getResult(0));
  for (Operation *op : batch.steps)
    if (!isa<LLVM::LLVMStructType>(op->getResult(0).getType()))
      exportValue(op->getResult(0));
  for (size_t i = 0; i < batch.followersToMove; ++i)
    batch.followers[i]->moveBefore(last);
  // Users are erased first: extractions (of extractions) in reverse, then the steps among themselves.
  for (Operation *op : batch.steps)
    op->dropAllReferences();
  for (Operation *op : llvm::reverse(batch.extracts)) {
    erased.insert(op);
    op->erase();
  }
  for (Operation *op : llvm::reverse(batch.steps)) {
    erased.insert(op);
    op->erase();
  }
}

} // namespace attn::host

//===- Batch.cpp - Matrix operations as programs of the warp --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every warp-wide operation makes each of 32 fibers wait once, which costs far more than the multiplication
// itself. But between two side effects, ldmatrix and mma.sync only feed each other: such a run of them
// becomes one program, for which the warp syncs once. Its inputs are put into the exchange buffer first, and
// results used outside are taken from it afterwards. Fragments between steps never leave it. Nothing
// observable changes: a run contains no synchronization that orders memory, and no access but its own.
//
// A run ends at an operation with effects, or at a matrix operation whose operand was computed from a result
// of the run other than by extraction from its struct. Pure operations that use results move after the run,
// all others stay before it.
//
//===----------------------------------------------------------------------===//
#include "Batch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace attn::host {

using rt::host::WarpProgram;
using rt::host::WarpStep;

static bool isMatrix(Operation *op) { return isa<NVVM::MmaOp, NVVM::LdMatrixOp>(op); }

bool Batcher::isPure(Operation *op) {
  if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op)) {
    StringRef name = intrinsic.getIntrin();
    return name.starts_with("llvm.nvvm.") && name.contains(".approx");
  }
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 && !op->hasTrait<OpTrait::IsTerminator>();
}

static unsigned resultWords(Operation *op) {
  auto structure = dyn_cast<LLVM::LLVMStructType>(op->getResult(0).getType());
  return structure ? static_cast<unsigned>(structure.getBody().size()) : 1;
}

bool Batcher::fits(Operation *op) const {
  if (steps.empty())
    return true;
  if (words + op->getNumOperands() + resultWords(op) > rt::host::kExchangeWords)
    return false;
  return llvm::all_of(op->getOperands(), [&](Value v) { return !tainted.contains(v) || wires.contains(v); });
}

void Batcher::add(Operation *op) {
  words += op->getNumOperands() + resultWords(op);
  steps.push_back(op);
  followersToMove = followers.size();
  tainted.insert(op->getResult(0));
  if (resultWords(op) == 1 && !isa<LLVM::LLVMStructType>(op->getResult(0).getType()))
    wires[op->getResult(0)] = {op, 0};
}

void Batcher::follow(Operation *op) {
  if (!llvm::any_of(op->getOperands(), [&](Value v) { return tainted.contains(v); }))
    return;
  for (Value result : op->getResults())
    tainted.insert(result);
  if (auto extract = dyn_cast<LLVM::ExtractValueOp>(op)) {
    Operation *source = extract.getContainer().getDefiningOp();
    if (source && isMatrix(source) && extract.getPosition().size() == 1) {
      wires[extract] = {source, static_cast<unsigned>(extract.getPosition()[0])};
      extracts.push_back(op);
      return;
    }
  } else if (isa<LLVM::BitcastOp>(op)) {
    if (auto it = wires.find(op->getOperand(0)); it != wires.end()) {
      Wire wire = it->second;
      wires[op->getResult(0)] = wire;
      extracts.push_back(op);
      return;
    }
  }
  followers.push_back(op);
}

/// Assigns a word of the exchange buffer to every value of the run. Values with disjoint lifetimes share
/// words. An accumulator is updated in place.
void Batcher::assignWords(WarpProgram &program, llvm::DenseMap<Value, unsigned> &inputs,
                          llvm::DenseMap<Wire, unsigned> &outputs, const llvm::DenseSet<Wire> &exported) {
  llvm::DenseMap<Wire, unsigned> lastUse;
  llvm::DenseMap<Value, unsigned> lastInputUse;
  for (auto [i, op] : llvm::enumerate(steps))
    for (Value v : op->getOperands()) {
      if (auto it = wires.find(v); it != wires.end())
        lastUse[it->second] = static_cast<unsigned>(i);
      else
        lastInputUse[v] = static_cast<unsigned>(i);
    }
  llvm::SmallVector<unsigned> free;
  unsigned next = 0;
  auto allocate = [&] { return free.empty() ? next++ : free.pop_back_val(); };
  for (Operation *op : steps)
    for (Value v : op->getOperands())
      if (!wires.contains(v) && !inputs.contains(v))
        inputs[v] = next++;
  for (auto [index, op] : llvm::enumerate(steps)) {
    auto i = static_cast<unsigned>(index);
    WarpStep step;
    step.op = opIds->lookup(op);
    unsigned n = 0;
    llvm::SmallVector<unsigned> dying;
    for (Value v : op->getOperands()) {
      auto wire = wires.find(v);
      bool internal = wire != wires.end();
      unsigned word = internal ? outputs.lookup(wire->second) : inputs.lookup(v);
      bool dies = internal ? lastUse.lookup(wire->second) == i && !exported.contains(wire->second)
                           : lastInputUse.lookup(v) == i;
      if (dies && !llvm::is_contained(dying, word))
        dying.push_back(word);
      step.in[n++] = static_cast<uint16_t>(word);
    }
    unsigned count = resultWords(op);
    step.count = static_cast<uint8_t>(count);
    if (auto mma = dyn_cast<NVVM::MmaOp>(op)) {
      step.kind =
          *mma.getMultiplicandAPtxType() == NVVM::MMATypes::f16 ? WarpStep::MmaF16 : WarpStep::MmaBF16;
    } else {
      bool transposed = cast<NVVM::LdMatrixOp>(op).getLayout() == NVVM::MMALayout::col;
      step.kind = transposed ? WarpStep::LdmatrixTransposed : WarpStep::Ldmatrix;
    }
    // A step reads all its inputs before it writes, so it may reuse words that die in it: an accumulator
    // reuses its own word, in place.
    for (unsigned r = 0; r < count; ++r) {
      unsigned word;
      unsigned own = step.in[rt::host::kMmaC + r];
      auto at = isa<NVVM::MmaOp>(op) ? llvm::find(dying, own) : dying.end();
      if (at != dying.end()) {
        word = own;
        dying.erase(at);
      } else {
        word = allocate();
      }
      step.out[r] = static_cast<uint16_t>(word);
      outputs[{op, r}] = word;
    }
    for (unsigned r = 0; r < count; ++r) // an unused result frees its word at once
      if (!lastUse.contains({op, r}) && !exported.contains({op, r}))
        free.push_back(step.out[r]);
    free.append(dying);
    program.steps.push_back(step);
  }
}

bool Batcher::isExported(Value value) const {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    return !llvm::is_contained(steps, user) && !llvm::is_contained(extracts, user);
  });
}

} // namespace attn::host

//===- ScheduleShape.cpp - What of a problem schedules depend on ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/ScheduleModel.h"

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The updates that a result depends on, in the function's order.
static SmallVector<UpdateOp> updatesOf(func::FuncOp function, FinishOp finish) {
  llvm::SmallDenseSet<Operation *> needed;
  SmallVector<Operation *> open{finish};
  while (!open.empty())
    for (Value operand : open.pop_back_val()->getOperands())
      if (Operation *op = operand.getDefiningOp();
          op && isa<StateType>(operand.getType()) && needed.insert(op).second)
        open.push_back(op);
  SmallVector<UpdateOp> updates;
  for (UpdateOp update : function.getOps<UpdateOp>())
    if (needed.contains(update))
      updates.push_back(update);
  return updates;
}

std::optional<ScheduleShape> ScheduleShape::of(func::FuncOp function) {
  auto inits = function.getOps<InitOp>();
  auto finishes = function.getOps<FinishOp>();
  if (inits.empty() || finishes.empty())
    return {};
  auto isLast = [](FinishOp finish) { return !firstAttr.isOn(finish); };
  auto last = llvm::find_if(finishes, isLast);
  FinishOp finish = last == finishes.end() ? *finishes.begin() : *last;
  auto query = cast<RankedTensorType>((*inits.begin()).getQuery().getType());
  ScheduleShape shape;
  shape.element = query.getElementType();
  shape.byRow = numericsAttr.isOn(function);
  if (Value gate = finish.getGate())
    shape.gatesFeatures = cast<RankedTensorType>(gate.getType()).getRank() == 3;
  shape.quantizedOutput = getElementTypeOrSelf(finish.getOutput()) != shape.element;
  for (UpdateOp update : updatesOf(function, finish)) {
    shape.group = query.getDimSize(1) / update.getKVHeads();
    SmallVector<int64_t> ends;
    update.getVisibility().collectEnds(ends);
    shape.sizes = std::max(shape.sizes, static_cast<int64_t>(ends.size()));
    shape.rawScores &= update.getScore().empty();
    auto tables = dyn_cast_or_null<ArrayAttr>(backwardAttr.get(function));
    shape.tableReads = static_cast<int64_t>(attn::tableReads(update, tables).size());
    shape.plain &= update.getScore().empty() && ends.empty();
    shape.regions.push_back(update.getKv().getType());
    HeadClassesAttr classes = update.getHeadClassesAttr();
    shape.masks += classes && !update.getClassOfRegion() ? classes.size() : 1;
    shape.plain &= !classes;
  }
  int64_t keyDim = query.getDimSize(2), valueDim = finish.getState().getType().getValueDim();
  shape.keyDim = paddedDim(keyDim, shape.element);
  shape.valueDim = paddedDim(valueDim, shape.element);
  for (KVType region : shape.regions) {
    shape.keyDim = std::max(shape.keyDim, paddedDim(keyDim, codesOf(region.getKey())));
    shape.valueDim = std::max(shape.valueDim, paddedDim(valueDim, codesOf(region.getValue())));
    const rt::Store store = storeOf(region);
    for (const rt::StorePart *part : {&store.keys, &store.values})
      shape.groups = std::max(shape.groups, part->format.groups(part->dim));
  }
  return shape;
}

bool ScheduleShape::areLatent() const {
  return llvm::all_of(regions, [](KVType region) { return region.getLatent(); });
}

bool ScheduleShape::mixesLatent() const {
  return !areLatent() && llvm::any_of(regions, [](KVType region) { return region.getLatent(); });
}

Type ScheduleShape::converted() const {
  for (KVType region : regions)
    for (Type stored : {region.getKey(), region.getValue()})
      if (isa<QuantizedType>(stored))
        return stored;
  return {};
}

/// Whether producers can widen a part of a store. A lane widens 16 features of a line at once, whose scale
/// and zero point, those of values, lie in one word of the line's metadata. They convert e4m3 and e5m2,
/// but no other floats. Scores take those of keys, one of each for a token. Results take the scale of a head
/// or a tensor.
static bool isWidenable(const rt::StorePart &part, int64_t tileDim, int64_t mostGroups) {
  constexpr int64_t panel = 64, mostFeatures = 128, run = 16;
  const rt::Format &format = part.format;
  if (part.dim != tileDim || part.dim % panel != 0 || part.dim > mostFeatures || format.hasBlocks())
    return false;
  if (format.isInteger())
    return format.groups(part.dim) <= mostGroups && format.group % run == 0;
  const bool converts = format.codes == rt::DType::F8E4M3FN || format.codes == rt::DType::F8E5M2;
  return converts && format.hasSharedScale();
}

/// Their scale is a part of the softmax's unit and of results, so no factor is left for a tile. Score
/// regions, several masks, masks of several sizes and gates of features take registers that two warpgroups of
/// producers do not leave.
bool ScheduleShape::mayWidenLatents() const {
  constexpr int64_t panel = 64;
  if (regions.size() != 1 || !areLatent() || byRow || gatesFeatures || !rawScores || masks > 1 || sizes > 1 ||
      valueSlices() != 2 || valueDim % (2 * panel) != 0 || keyDim % panel != 0)
    return false;
  const rt::Store store = storeOf(regions.front());
  return store.keys.format.codes == rt::DType::F8E4M3FN && store.keys.format.hasSharedScale() &&
         !store.isOfClass() && store.keys.dim == keyDim && store.values.dim == valueDim;
}

bool ScheduleShape::mayWiden() const {
  if (regions.size() != 1 || areLatent() || !isa<QuantizedType>(regions.front().getKey()) ||
      !isa<QuantizedType>(regions.front().getValue()))
    return false;
  const rt::Store store = storeOf(regions.front());
  return !store.isOfClass() && isWidenable(store.keys, keyDim, /*mostGroups=*/1) &&
         isWidenable(store.values, valueDim, /*mostGroups=*/4);
}

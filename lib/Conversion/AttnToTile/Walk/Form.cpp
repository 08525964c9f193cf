//===- Form.cpp - How warps hold what a kernel works on -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Form.h"

#include "AttnToTile/Kernel/LastFactor.h"
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Kernel/ScoreBound.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace rt = ::attn::rt;
using Scales = rt::Format::Scales;

/// A bound of scores in log2. A sum of 2^31 exponentials of such scores fits f32, and each exponential fits
/// bf16.
static constexpr double fixedUnitBound = 80;

static rt::StorePart partOf(UpdateOp update, bool keys) {
  return storeOf(update.getKv().getType()).part(keys);
}

/// Whether scores enter the softmax as the MMAs leave them.
static bool hasRawScores(Chain &chain) {
  return chain.updates.empty() || chain.updates.front().getScore().empty();
}

/// Tokens are the first axis if queries are few, or if tokens are stationary and, for significance, not
/// quantized.
static bool putsTokensFirst(Chain &chain, ScheduleAttr schedule) {
  if (chain.significance)
    return partOf(chain.updates.front(), /*keys=*/true).format.isPlain();
  return schedule.hasFewRows() || chain.keepsTokens();
}

static bool hasFixedUnit(Chain &chain, ScheduleAttr schedule) {
  if (hasRawScores(chain))
    return false;
  // Weights of quantized values are f16, which lacks the range.
  bool roomy = llvm::none_of(
      chain.updates, [](UpdateOp update) { return isa<QuantizedType>(update.getKv().getType().getValue()); });
  Type f32 = Float32Type::get(schedule.getContext());
  // Beside wide outputs, mma has no register for a unit other than 1: the running maximum takes it.
  bool wide = schedule.getKind() == ScheduleKind::Mma && schedule.getSliceFeatures(chain.valueDim()) > 128;
  return roomy && !wide && elementOf(chain.element()).exponentBits >= elementOf(f32).exponentBits &&
         scoreBound(chain.updates.front().getScore().front()) * log2e <= fixedUnitBound;
}

/// Whether weights are multiplied by the scales of integer values: if rows are few, and the values of all
/// regions have the same format, with one scale per token.
static bool keepsZerosApart(Chain &chain, ScheduleAttr schedule) {
  if (!schedule.hasFewRows() || chain.updates.empty())
    return false;
  rt::StorePart first = partOf(chain.updates.front(), /*keys=*/false);
  return llvm::all_of(chain.updates, [&](UpdateOp update) {
    rt::StorePart part = partOf(update, /*keys=*/false);
    return part.format.isInteger() && part.format.groups(part.dim) == 1 &&
           part.format.bits == first.format.bits;
  });
}

/// Whether units and results include a scale that the whole kernel shares.
static bool foldsScale(Chain &chain, bool keys) {
  if (chain.updates.empty() || !chain.hasOneRegion())
    return false;
  UpdateOp update = chain.updates.front();
  return partOf(update, keys).format.hasSharedScale() && !update.getKv().getType().isOfClass();
}

/// Whether the weights of a region are multiplied by floating-point scales: of a token, of a block, or of a
/// head or tensor that not all regions share.
static bool weighsFloats(Chain &chain, UpdateOp update) {
  const rt::Format format = partOf(update, /*keys=*/false).format;
  return format.scales == rt::Format::Scales::Token || format.isMixed() ||
         format.blocks == rt::Format::Blocks::E8M0 ||
         (format.hasSharedScale() && !foldsScale(chain, /*keys=*/false));
}

/// Whether a segment may be a list of single tokens. Long heads leave no registers for another mask, and a
/// list has slots where a score region would read positions. The planner sees by the parameters that a kernel
/// takes no lists.
static bool mayList(Chain &chain) {
  bool readsKeyPosition =
      !hasRawScores(chain) && !chain.updates.front().getScore().front().getArguments().back().use_empty();
  return !readsKeyPosition && chain.paddedKeyDim() + chain.paddedValueDim() <= 320 &&
         llvm::any_of(chain.updates,
                      [](UpdateOp update) { return storeOf(update.getKv().getType()).hasSingleTokens(); });
}

FormAttr mlir::attn::formOf(Chain &chain, ScheduleAttr schedule) {
  MLIRContext *context = schedule.getContext();
  FormTraits traits = FormTraits::None;
  auto add = [&](bool has, FormTraits trait) { traits = has ? traits | trait : traits; };
  add(putsTokensFirst(chain, schedule), FormTraits::TokensFirst);
  add(hasFixedUnit(chain, schedule), FormTraits::FixedUnit);
  add(llvm::any_of(chain.updates, [&](UpdateOp update) { return weighsFloats(chain, update); }),
      FormTraits::Lifts);
  add(mayList(chain), FormTraits::Lists);
  add(foldsScale(chain, /*keys=*/true), FormTraits::KeyScale);
  add(foldsScale(chain, /*keys=*/false), FormTraits::ValueScale);
  bool tokens = chain.keepsTokens();
  Type codes;
  if (keepsZerosApart(chain, schedule))
    codes = codesOf(chain.updates.front().getKv().getType().getValue());
  FloatAttr unit;
  if (!hasRawScores(chain))
    unit = FloatAttr::get(Float32Type::get(context), lastFactor(chain.updates.front().getScore().front()));
  return FormAttr::get(
      context, schedule.getKind() == ScheduleKind::Wgmma ? Mmas::Wgmma : Mmas::Mma,
      tokens ? Stationary::Tokens : Stationary::Rows, tokens ? schedule.getKeys() : schedule.getWarpRows(),
      tokens ? schedule.getWarpRows() : schedule.getWarpKeys(), chain.queryHeads(), chain.kvHeads(),
      chain.keyDim(), chain.valueDim(),
      chain.addsToRows() ? halvedKeyTile(chain.paddedKeyDim()) : chain.paddedKeyDim(),
      schedule.getSliceFeatures(chain.paddedValueDim()), chain.element(), traits, codes, unit);
}

int64_t mlir::attn::rowSumsOf(Chain &chain, func::FuncOp kernel) {
  if (chain.updates.empty() || chain.keepsTokens())
    return 0;
  ArrayAttr asked = tablesAttr.get(kernel);
  int64_t reads = tableReads(chain.updates.front(), asked).size();
  bool ofSinks = asked && llvm::is_contained(asked, StringAttr::get(kernel.getContext(), sinkLogits));
  return reads > 0 || ofSinks ? 2 + 2 * reads : 0;
}

void mlir::attn::numberUpdate(UpdateOp update, Chain &chain, unsigned operand) {
  Builder b(update);
  operandAttr.set(update, b.getI32IntegerAttr(operand));
  firstEndAttr.set(update, b.getI32IntegerAttr(chain.firstEnd(operand)));
  if (chain.headClasses())
    firstClassEndAttr.set(update, b.getI32IntegerAttr(chain.firstEndOfClass(0)));
}

//===- Normalize.cpp - Explicit defaults, simple visibility ---------------===//
#include "attn/Dialect/Attn/Transforms/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_NORMALIZEPASS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {
struct NormalizePass : attn::impl::NormalizePassBase<NormalizePass> {
  using NormalizePassBase::NormalizePassBase;

  void runOnOperation() override {
    getOperation().walk([&](AttendOp attend) {
      if (!attend.getScaleAttr()) {
        attend.setScaleAttr(attend.getScaleOrDefault());
        ++scales;
      }
      simplify(attend);
    });
  }

  void simplify(AttendOp attend) {
    SmallVector<Value> regions;
    SmallVector<Attribute> visibility;
    for (auto [region, attribute] : llvm::zip(attend.getRegions(), attend.getVisibility())) {
      auto see = cast<VisibilityAttr>(attribute);
      VisibilityAttr simple = see.simplify();
      if (simple != see)
        ++visibilities;
      if (simple.isStaticallyEmpty())
        continue;
      regions.push_back(region);
      visibility.push_back(simple);
    }
    // Of an attend that sees nothing at all, one region keeps the operation well formed.
    if (regions.empty()) {
      regions.push_back(attend.getRegions().front());
      visibility.push_back(attend.getRegionVisibility(0).simplify());
    }
    dropped += attend.getRegions().size() - regions.size();
    attend.getKvMutable().assign(regions);
    attend.setVisibilityAttr(ArrayAttr::get(&getContext(), visibility));
  }
};
} // namespace

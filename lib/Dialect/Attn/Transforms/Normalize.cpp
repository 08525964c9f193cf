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
      simplifyClasses(attend);
      simplify(attend);
    });
  }

  /// Classes that see the same of every region are no classes: what they see becomes what the regions show.
  void simplifyClasses(AttendOp attend) {
    HeadClassesAttr classes = attend.getHeadClassesAttr();
    if (!classes)
      return;
    SmallVector<VisibilityAttr> simple;
    for (VisibilityAttr see : classes.getVisibility()) {
      simple.push_back(see.simplify());
      visibilities += simple.back() != see;
    }
    SmallVector<Attribute> seen;
    for (VisibilityAttr shown : attend.getVisibility().getAsRange<VisibilityAttr>()) {
      auto narrow = [&](VisibilityAttr see) {
        return VisibilityAttr::intersect(&getContext(), {shown.simplify(), see}).simplify();
      };
      seen.push_back(narrow(simple.front()));
      if (!llvm::all_of(simple, [&](VisibilityAttr see) { return narrow(see) == seen.back(); })) {
        attend.setHeadClassesAttr(HeadClassesAttr::get(&getContext(), classes.getNames(), simple));
        return;
      }
    }
    attend.setVisibilityAttr(ArrayAttr::get(&getContext(), seen));
    attend.getClassesMutable().clear();
    attend.removeHeadClassesAttr();
    ++unclassed;
  }

  void simplify(AttendOp attend) {
    SmallVector<Value> regions;
    SmallVector<Attribute> visibility;
    for (auto [region, attribute] : llvm::zip(attend.getRegions(), attend.getVisibility())) {
      auto see = cast<VisibilityAttr>(attribute);
      VisibilityAttr simple = see.simplify();
      if (simple != see)
        ++visibilities;
      HeadClassesAttr classes = attend.getHeadClassesAttr();
      if (simple.isStaticallyEmpty() || (classes && classes.isStaticallyEmpty()))
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

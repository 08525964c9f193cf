//===- Normalize.cpp - Explicit defaults, simple visibility ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/Transforms/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_NORMALIZEPASS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {
struct NormalizePass : mlir::attn::impl::NormalizePassBase<NormalizePass> {
  using NormalizePassBase::NormalizePassBase;

  void runOnOperation() override {
    getOperation().walk([&](AttendOp attend) {
      if (!attend.getScaleAttr())
        attend.setScaleAttr(attend.getScaleOrDefault());
      simplify(attend);
      simplifyClasses(attend);
      simplify(attend); // again: the classes' visibility may have become a region's
    });
  }

  /// Removes classes with equal visibility of every region, and gives their visibility to the regions. Keeps
  /// the classes if a region belongs to one of them.
  void simplifyClasses(AttendOp attend) {
    HeadClassesAttr classes = attend.getHeadClassesAttr();
    if (!classes)
      return;
    SmallVector<VisibilityAttr> simple;
    for (VisibilityAttr see : classes.getVisibility())
      simple.push_back(see.simplify());
    SmallVector<Attribute> seen;
    for (VisibilityAttr shown : attend.getVisibility().getAsRange<VisibilityAttr>()) {
      auto narrow = [&](VisibilityAttr see) {
        return VisibilityAttr::intersect(&getContext(), {shown.simplify(), see}).simplify();
      };
      seen.push_back(narrow(simple.front()));
      if (attend.getRegionClassesAttr() ||
          !llvm::all_of(simple, [&](VisibilityAttr see) { return narrow(see) == seen.back(); })) {
        attend.setHeadClassesAttr(HeadClassesAttr::get(&getContext(), classes.getNames(), simple));
        return;
      }
    }
    attend.setVisibilityAttr(ArrayAttr::get(&getContext(), seen));
    attend.getClassesMutable().clear();
    attend.removeHeadClassesAttr();
  }

  void simplify(AttendOp attend) {
    SmallVector<Value> regions;
    SmallVector<Attribute> visibility, names;
    auto keep = [&](unsigned i, VisibilityAttr see) {
      regions.push_back(attend.getRegions()[i]);
      visibility.push_back(see);
      StringAttr name = attend.getRegionClass(i);
      names.push_back(name ? name : StringAttr::get(&getContext(), ""));
    };
    HeadClassesAttr classes = attend.getHeadClassesAttr();
    for (unsigned i = 0, e = attend.getRegions().size(); i != e; ++i) {
      VisibilityAttr simple = attend.getRegionVisibility(i).simplify();
      if (simple.isStaticallyEmpty() || (classes && classes.isStaticallyEmpty()) ||
          classSeesNothing(attend.getRegionClass(i), classes))
        continue;
      simplified += simple != attend.getRegionVisibility(i);
      keep(i, simple);
    }
    // One region keeps the operation well formed if nothing at all is visible.
    if (regions.empty())
      keep(0, attend.getRegionVisibility(0).simplify());
    dropped += attend.getRegions().size() - regions.size();
    attend.getKvMutable().assign(regions);
    attend.setVisibilityAttr(ArrayAttr::get(&getContext(), visibility));
    if (llvm::all_of(names, [](Attribute name) { return cast<StringAttr>(name).empty(); }))
      attend.removeRegionClassesAttr();
    else
      attend.setRegionClassesAttr(ArrayAttr::get(&getContext(), names));
  }

  static bool classSeesNothing(StringAttr name, HeadClassesAttr classes) {
    return name && llvm::any_of(llvm::zip(classes.getNames(), classes.getVisibility()), [&](auto pair) {
             return std::get<0>(pair) == name && std::get<1>(pair).isStaticallyEmpty();
           });
  }
};
} // namespace

//===- TensorMaps.cpp - Boxes that the copy engine moves ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TensorMaps.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

SmallVector<Value> mlir::attn::tensorMaps(KernelBuilder &b, StringRef name, StringRef buffer, SharedType tile,
                                          int64_t lines, std::optional<MapAxis> inner, MapAxis slots,
                                          int64_t features, MapAxis heads) {
  tile = SharedType::get(b.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(), tile.getCols(),
                         tile.getElement(), /*swizzled=*/true, tile.getBoxes());
  int64_t size = tile.getElement().getIntOrFloatBitWidth() / 8;
  bool padded = isPadded(tile, features);
  SmallVector<Value> maps;
  for (int64_t width : {128, 64, 32}) {
    int64_t panels = llvm::count_if(tile.getPanels(), [&](auto &panel) { return panel.width == width; });
    if (panels == 0)
      continue;
    SmallVector<MapAxis> axes{{padded ? features : width / size, {}, size, width / size, ""}};
    if (inner)
      axes.push_back(*inner);
    axes.push_back(slots);
    if (padded)
      axes.push_back({1, {}, width, 1, ""});
    else
      axes.push_back({features * size / width, {}, width, lines == tile.getBoxLines() ? panels : 1, ""});
    axes.push_back(heads);
    SmallVector<int64_t> extents, strides, box;
    SmallVector<Attribute> dims;
    SmallVector<StringRef> times;
    for (const MapAxis &axis : axes) {
      extents.push_back(axis.extent);
      strides.push_back(axis.stride);
      box.push_back(axis.box);
      times.push_back(axis.times);
      dims.push_back(b.getStrArrayAttr(SmallVector<StringRef>(axis.dims.begin(), axis.dims.end())));
    }
    std::string unique = (name + "." + Twine(lines) + "x" + Twine(width / size)).str();
    maps.push_back(b.tensorMap(TensorMapAttr::get(
        b.getContext(), unique, buffer, tile.getElement(), b.getDenseI64ArrayAttr(extents),
        b.getArrayAttr(dims), b.getDenseI64ArrayAttr(strides), b.getDenseI64ArrayAttr(box), width,
        llvm::all_of(times, [](StringRef name) { return name.empty(); }) ? ArrayAttr()
                                                                         : b.getStrArrayAttr(times))));
  }
  return maps;
}

SmallVector<Value> mlir::attn::rowMaps(KernelBuilder &b, FormAttr form, RowsPart &packed, StringRef buffer,
                                       SharedType tile, int64_t features, bool dense) {
  int64_t group = packed.heads(), lines = tile.getBoxLines();
  int64_t bytes = dense ? features * tile.getElement().getIntOrFloatBitWidth() / 8 : 1;
  MapAxis ofGroup{group, {}, bytes, group, ""};
  MapAxis rows{1, {"rows"}, dense ? form.getHeads() * bytes : 1, lines / group, ""};
  MapAxis heads{form.getHeads() / group, {}, group * bytes, 1, ""};
  if (!dense) {
    rows.times = ::attn::rt::strideName(std::string_view(buffer), 0);
    ofGroup.times = heads.times = ::attn::rt::strideName(std::string_view(buffer), 1);
  }
  std::string name = (buffer + ".map" + (group < form.getGroup() ? ".of" + Twine(group) : Twine())).str();
  return tensorMaps(b, name, buffer, tile, lines, ofGroup, rows, features, heads);
}

DenseI64ArrayAttr mlir::attn::paddedFrom(ValueRange targets, ArrayRef<int64_t> features) {
  bool padded = llvm::any_of(llvm::zip(targets, features), [](auto pair) {
    return cast<SharedType>(std::get<0>(pair).getType()).getCols() != std::get<1>(pair);
  });
  return padded ? DenseI64ArrayAttr::get(targets.front().getContext(), features) : DenseI64ArrayAttr();
}

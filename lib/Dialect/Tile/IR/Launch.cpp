//===- Launch.cpp - Launch descriptions of kernels ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/Launch.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace mlir::tile;
namespace rt = ::attn::rt;

static constexpr StringLiteral knownKeys[] = {"role",   "grid",      "rows_per_warp",
                                              "pieces", "if_filled", "overlaps"};

void mlir::tile::setLaunch(Operation *kernel, const KernelLaunch &given) {
  Builder b(kernel->getContext());
  const rt::LaunchInfo &launch = given.launch;
  NamedAttrList entries;
  entries.set("role", b.getStringAttr(rt::kernelRoleName(given.role)));
  entries.set("grid", b.getStringAttr(launch.gridName()));
  if (given.rowsPerWarp > 0) {
    entries.set("rows_per_warp", b.getI32IntegerAttr(given.rowsPerWarp));
    entries.set("pieces", b.getI32IntegerAttr(given.pieces));
  }
  if (launch.onlyIfFilled)
    entries.set("if_filled", b.getUnitAttr());
  if (launch.overlapsPrevious)
    entries.set("overlaps", b.getUnitAttr());
  launchAttr.set(kernel, entries.getDictionary(b.getContext()));
}

std::optional<KernelLaunch> mlir::tile::launchOf(Operation *kernel) {
  auto entries = launchAttr.get(kernel);
  if (!entries)
    return std::nullopt;
  KernelLaunch result;
  result.role = *rt::parseKernelRole(std::string_view(entries.getAs<StringAttr>("role").getValue()));
  result.launch.grid = *rt::parseGrid(std::string_view(entries.getAs<StringAttr>("grid").getValue()));
  if (auto rows = entries.getAs<IntegerAttr>("rows_per_warp")) {
    result.rowsPerWarp = rows.getInt();
    result.pieces = entries.getAs<IntegerAttr>("pieces").getInt();
  }
  result.launch.onlyIfFilled = entries.contains("if_filled");
  result.launch.overlapsPrevious = entries.contains("overlaps");
  return result;
}

LogicalResult mlir::tile::verifyLaunch(Operation *kernel, Attribute value) {
  auto fail = [&](const Twine &what) {
    return kernel->emitOpError("expected '") << launchAttr << "' " << what << ", got " << value;
  };
  auto entries = dyn_cast<DictionaryAttr>(value);
  if (!entries)
    return fail("to be a dictionary");
  for (NamedAttribute entry : entries)
    if (!llvm::is_contained(knownKeys, entry.getName().strref()))
      return fail("to have no '" + entry.getName().strref() + "'");
  auto role = entries.getAs<StringAttr>("role"), grid = entries.getAs<StringAttr>("grid");
  if (!role || !rt::parseKernelRole(std::string_view(role.getValue())))
    return fail("to have a 'role' that the runtime knows");
  if (!grid || !rt::parseGrid(std::string_view(grid.getValue())))
    return fail("to have a 'grid': an array of a plan, or rows");
  for (StringRef key : {"rows_per_warp", "pieces"}) {
    auto count = entries.getAs<IntegerAttr>(key);
    if (entries.contains("rows_per_warp") != entries.contains("pieces") ||
        (entries.contains(key) &&
         (!count || count.getValue().getSignificantBits() > 32 || count.getValue().slt(1))))
      return fail("to have both 'rows_per_warp' and 'pieces', positive integers, or neither");
  }
  for (StringRef key : {"if_filled", "overlaps"})
    if (entries.contains(key) && !entries.getAs<UnitAttr>(key))
      return fail("to have '" + key + "' without a value");
  return success();
}

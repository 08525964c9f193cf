//===- GradientManifest.cpp - Manifests of gradients and significance -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientManifest.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

static void describeTables(Chain &chain, rt::Manifest &manifest) {
  auto tables = dyn_cast_or_null<ArrayAttr>(backwardAttr.get(chain.function));
  for (const TableRead &each : tableReads(chain.updates.front(), tables))
    for (const auto &[name, dtype] :
         {std::pair(each.sums, rt::DType::F32), std::pair(each.places, rt::DType::I32)})
      manifest.results.push_back({name, dtype, {{"rows", 0}, {"", manifest.qHeads}}});
}

/// Returns the dimensions of a tensor of the store.
static std::vector<rt::DimInfo> dimsOf(const rt::StoreTensor &tensor, const std::string &prefix) {
  std::vector<rt::DimInfo> dims;
  dims.reserve(tensor.dims.size());
  for (const rt::StoreDim &dim : tensor.dims)
    dims.push_back({dim.size ? prefix + std::string(rt::sizeName(*dim.size)) : "", dim.value});
  return dims;
}

void mlir::attn::describeGradients(Chain &chain, rt::Manifest &manifest) {
  auto ofRows = [&](int64_t features) {
    std::vector<rt::DimInfo> dims{{"rows", 0}, {"", manifest.qHeads}};
    if (features)
      dims.push_back({"", features});
    return dims;
  };
  auto take = [&](StringRef name, rt::DType dtype, int64_t features) {
    rt::Argument argument;
    argument.name = name.str();
    argument.dtype = dtype;
    argument.dims = ofRows(features);
    manifest.arguments.push_back(std::move(argument));
  };
  take("o", manifest.dtype, manifest.valueDim);
  take("lse", rt::DType::F32, 0);
  take("do", manifest.dtype, manifest.valueDim);
  if (chain.finish.getLse())
    take("dlse", rt::DType::F32, 0);

  manifest.results = {{"dq", manifest.dtype, ofRows(manifest.keyDim)}};
  const int64_t heads = rt::evenHeads(chain.group());
  const std::vector<rt::DimInfo> packed{{"", manifest.qHeads / heads}, {"rows", 0}, {"", heads}};
  for (StringRef name : {StringRef("delta"), StringRef(logLse)})
    manifest.results.push_back({name.str(), rt::DType::F32, packed});
  for (UpdateOp update : chain.updates) {
    std::string prefix = argumentName(update.getKv()).str() + ".";
    rt::Store store = storeOf(update.getKv().getType());
    for (const rt::StoreTensor &tensor : store.data()) {
      manifest.results.push_back({prefix + "d" + tensor.name, tensor.dtype, dimsOf(tensor, prefix)});
    }
  }
  describeTables(chain, manifest);
}

void mlir::attn::describeRowSums(rt::Manifest &manifest) {
  const std::string name = rowSums.str();
  constexpr int64_t block = 16; // features of a line in registers: whole blocks
  const int64_t features = llvm::alignTo(manifest.keyDim, block);
  if (!manifest.findResult(name))
    manifest.results.push_back({name, rt::DType::F32, {{"rows", 0}, {"", manifest.qHeads}, {"", features}}});
}

void mlir::attn::describeSignificance(Chain &chain, rt::Manifest &manifest) {
  if (auto rows = significanceRowsAttr.get(chain.function))
    manifest.significanceRows = rows.getInt();
  for (UpdateOp update : chain.updates) {
    std::string prefix = argumentName(update.getKv()).str() + ".";
    const rt::Store store = storeOf(update.getKv().getType());
    auto size = [&](rt::StoreSize of) { return rt::DimInfo{prefix + std::string(rt::sizeName(of)), 0}; };
    std::vector<rt::DimInfo> dims;
    if (store.isPaged()) { // by position
      dims = {size(rt::StoreSize::Instances),
              {"", store.heads},
              size(rt::StoreSize::MaxPages),
              {"", store.tokensOf(1)}};
    } else {
      dims = dimsOf(store.data().front(), prefix);
      dims.pop_back(); // all dimensions of keys except features
    }
    manifest.results.push_back({prefix + "significance", rt::DType::F32, dims});
  }
}

//===- Manifest.cpp - Descriptions of kernels for launches ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Target/Manifest.h"

#include "GradientManifest.h"

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Score.h"
#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Dialect/Tile/IR/Launch.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Support/Elements.h"

#include "attn_rt/support/Version.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Config/llvm-config.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

/// Numbers ends in the order of the text; `sizes` collects them.
static rt::Visibility visibilityOf(VisibilityAttr attribute, std::vector<int32_t> &sizes) {
  rt::Visibility visibility{attribute.getKind(), -1, {}};
  if (!attribute.getSizes().empty())
    visibility.end = sizes.size();
  llvm::append_range(sizes, attribute.getSizes());
  for (VisibilityAttr operand : attribute.getOperands())
    visibility.of.push_back(visibilityOf(operand, sizes));
  return visibility;
}

static std::vector<rt::DimInfo> dimsOf(RankedTensorType type, ArrayRef<std::string> names) {
  std::vector<rt::DimInfo> dims;
  for (int64_t size : type.getShape()) {
    rt::DimInfo dim;
    if (ShapedType::isDynamic(size)) {
      dim.name = names.front();
      names = names.drop_front();
    } else {
      dim.value = size;
    }
    dims.push_back(std::move(dim));
  }
  return dims;
}

static rt::Argument::Role roleOf(Role role) {
  switch (role) {
  case Role::Query:
    return rt::Argument::Role::Query;
  case Role::KV:
    return rt::Argument::Role::KV;
  case Role::Sinks:
    return rt::Argument::Role::Sink;
  case Role::Tensor:
    return rt::Argument::Role::Tensor;
  case Role::Classes:
    return rt::Argument::Role::Classes;
  case Role::Rows:
    return rt::Argument::Role::Rows;
  case Role::Slots:
    return rt::Argument::Role::Slots;
  case Role::Status:
    return rt::Argument::Role::Status;
  case Role::Pages:
    return rt::Argument::Role::Pages;
  case Role::Gate:
    return rt::Argument::Role::Gate;
  case Role::OutputScale:
    return rt::Argument::Role::OutputScale;
  }
  llvm_unreachable("unknown role");
}

static LogicalResult describeArguments(func::FuncOp function, rt::Manifest &manifest) {
  FailureOr<Signature> signature = readSignature(function);
  if (failed(signature))
    return failure();
  for (auto [argument, known] : llvm::zip_equal(function.getArguments(), signature->arguments)) {
    rt::Argument entry;
    entry.name = known.name;
    if (auto kv = dyn_cast<KVType>(argument.getType())) {
      entry.role = rt::Argument::Role::KV;
      const rt::Store store = storeOf(kv);
      entry.store = store.kind;
      entry.page = kv.getPage();
      entry.kvHeads = kv.isOfClass() ? 0 : kv.getHeads();
      entry.ragged = kv.getRagged();
      entry.keyDim = kv.getKeyDim();
      entry.valueDim = kv.getValueDim();
      entry.latent = kv.getLatent();
      entry.keyFormat = store.keys.format;
      entry.valueFormat = store.values.format;
    } else {
      auto type = cast<RankedTensorType>(argument.getType());
      entry.role = roleOf(known.role);
      FailureOr<rt::DType> dtype = dtypeOf(type.getElementType(), [&] { return function.emitError(); });
      if (failed(dtype))
        return failure();
      entry.dtype = *dtype;
      entry.dims = dimsOf(type, known.dims);
    }
    manifest.arguments.push_back(std::move(entry));
  }
  return success();
}

static FailureOr<rt::Manifest> describeRowCopy(func::FuncOp function, const RowCopy &copy) {
  KVType type = copy.type();
  rt::Manifest manifest;
  manifest.qHeads = manifest.kvHeads = type.getHeads();
  manifest.keyDim = type.getKeyDim();
  manifest.valueDim = type.getValueDim();
  auto elementOfRows = [](Value rows) {
    return elementOf(cast<RankedTensorType>(rows.getType()).getElementType()).dtype;
  };
  manifest.dtype = copy.k ? elementOfRows(copy.k) : storeOf(type).keys.format.codes;
  if (!copy.to) // a gather returns rows of its own, the others change a cache
    for (auto [name, rows, dim] :
         {std::tuple("k", copy.k, manifest.keyDim), std::tuple("v", copy.v, manifest.valueDim)})
      if (rows)
        manifest.results.push_back(
            {name, elementOfRows(rows), {{"layers", 0}, {"rows", 0}, {"", manifest.kvHeads}, {"", dim}}});
  if (Value rotated = copy.prologue.rotated) {
    auto queries = cast<RankedTensorType>(rotated.getType());
    manifest.qHeads = queries.getDimSize(2);
    manifest.results.push_back(
        {"rotated",
         elementOfRows(rotated),
         {{"layers", 0}, {"rows", 0}, {"", manifest.qHeads}, {"", queries.getDimSize(3)}}});
  }
  if (failed(describeArguments(function, manifest)))
    return failure();
  return manifest;
}

/// Describes an operation on page tables, which has no heads or features.
static FailureOr<rt::Manifest> describePageTable(func::FuncOp function) {
  rt::Manifest manifest;
  manifest.keyDim = manifest.valueDim = 1;
  manifest.dtype = rt::DType::I32;
  if (failed(describeArguments(function, manifest)))
    return failure();
  return manifest;
}

static FailureOr<rt::Manifest> describeAttention(func::FuncOp function) {
  FailureOr<Chain> found = findChain(function);
  if (failed(found))
    return failure();
  Chain &chain = *found;
  rt::Manifest manifest;
  manifest.qHeads = chain.queryHeads();
  manifest.kvHeads = chain.kvHeads();
  manifest.keyDim = chain.keyDim();
  manifest.valueDim = chain.valueDim();
  manifest.dtype = elementOf(chain.element()).dtype;
  manifest.results.push_back({"o",
                              elementOf(getElementTypeOrSelf(chain.finish.getOutput())).dtype,
                              {{"rows", 0}, {"", manifest.qHeads}, {"", manifest.valueDim}}});
  if (chain.finish.getLse())
    manifest.results.push_back({"lse", rt::DType::F32, {{"rows", 0}, {"", manifest.qHeads}}});
  if (chain.finish.getOutputScales())
    manifest.results.push_back({outputScales.str(), rt::DType::F32, {{"rows", 0}, {"", manifest.qHeads}}});
  if (chain.first)
    for (auto [name, like] : {std::pair(firstOutput, 0), std::pair(firstLse, 1)}) {
      manifest.results.push_back(manifest.results[like]);
      manifest.results.back().name = name.str();
    }
  manifest.sinkLogits = static_cast<bool>(chain.init.getSinks());
  if (failed(describeArguments(function, manifest)))
    return failure();

  for (UpdateOp update : chain.updates) {
    rt::OperandInfo operand;
    operand.argument = argumentName(update.getKv()).str();
    for (auto [i, argument] : llvm::enumerate(manifest.arguments))
      if (argument.name == operand.argument)
        operand.argumentIndex = i;
    if (update.getRegionClassAttr())
      manifest.arguments[operand.argumentIndex].headClass = *update.getClassOfRegion();
    operand.visibility = visibilityOf(update.getVisibility(), manifest.ends);
    manifest.operands.push_back(std::move(operand));
    manifest.scale = update.getScale().convertToFloat();
    manifest.approximate |= !update.getScore().empty() && usesApproximateFunctions(update.getScore());
  }
  for (unsigned c = 0; chain.headClasses() && c < chain.classCount(); ++c)
    manifest.headClasses.push_back(
        {chain.headClasses().getNames()[c].str(), visibilityOf(chain.classVisibility(c), manifest.ends)});
  if (backwardAttr.isOn(function))
    describeGradients(chain, manifest);
  if (significanceAttr.isOn(function))
    describeSignificance(chain, manifest);
  if (manifest.approximate)
    manifest.tolerance = 3e-2; // see attn.attend, "Approximate functions"
  return manifest;
}

FailureOr<rt::Manifest> mlir::attn::describeProblem(func::FuncOp function) {
  std::optional<RowCopy> copy = findRowCopy(function);
  FailureOr<rt::Manifest> manifest = copy                   ? describeRowCopy(function, *copy)
                                     : findPageOp(function) ? describePageTable(function)
                                                            : describeAttention(function);
  if (failed(manifest))
    return failure();
  manifest->producer = std::string("attn ") + rt::version() + " (LLVM " LLVM_VERSION_STRING ")";
  manifest->entry = function.getName().str();
  return manifest;
}

static rt::Parameter parameterOf(tile::ParameterAttr attribute) {
  rt::Parameter parameter;
  switch (attribute.getKind()) {
  case tile::ParameterKind::Buffer:
    parameter.kind = rt::Parameter::Kind::Buffer;
    break;
  case tile::ParameterKind::Dim:
    parameter.kind = rt::Parameter::Kind::Dim;
    break;
  case tile::ParameterKind::End:
    parameter.kind = rt::Parameter::Kind::End;
    break;
  case tile::ParameterKind::Scale:
    parameter.kind = rt::Parameter::Kind::Scale;
    break;
  case tile::ParameterKind::Map:
    parameter.kind = rt::Parameter::Kind::Map;
    break;
  }
  parameter.name = attribute.getName().str();
  parameter.index = attribute.getIndex();
  return parameter;
}

static rt::TensorMapInfo tensorMapOf(tile::TensorMapAttr attribute) {
  rt::TensorMapInfo map;
  map.name = attribute.getName().str();
  map.buffer = attribute.getBuffer().str();
  map.dtype = elementOf(attribute.getElement()).dtype;
  for (auto [value, names] : llvm::zip_equal(attribute.getExtents().asArrayRef(), attribute.getDims())) {
    rt::TensorMapInfo::Extent extent{value, {}};
    for (auto name : cast<ArrayAttr>(names).getAsRange<StringAttr>())
      extent.of.push_back(name.str());
    map.dims.push_back(std::move(extent));
  }
  llvm::append_range(map.strides, attribute.getStrides().asArrayRef().drop_front());
  llvm::append_range(map.box, attribute.getBox().asArrayRef());
  map.swizzle = attribute.getSwizzle();
  if (ArrayAttr times = attribute.getTimes())
    for (auto name : llvm::drop_begin(times.getAsRange<StringAttr>()))
      map.times.push_back(name.str());
  return map;
}

/// The contract of a kernel that attends.
static rt::NumericsInfo numericsOf(tile::ScheduleAttr schedule, const rt::KernelInfo &kernel,
                                   const rt::Manifest &manifest) {
  bool plain = llvm::all_of(manifest.arguments, [](const rt::Argument &argument) {
    return argument.role != rt::Argument::Role::KV ||
           (argument.keyFormat.isPlain() && argument.valueFormat.isPlain());
  });
  // Those that share weights have sums of their own.
  int64_t streams = schedule.getSplitKeys()    ? schedule.getWarps()
                    : schedule.sharesWeights() ? schedule.getSlices()
                                               : 1;
  return {.instructions = kernel.schedule,
          .keys = kernel.keys,
          .streams = static_cast<int>(streams),
          .keysLeft = schedule.hasFewRows(),
          .weights = plain ? manifest.dtype : rt::DType::F16,
          .split = rt::rowSplitTokens,
          .output = manifest.results.front().dtype,
          .outputScales = manifest.findResult(outputScales) != nullptr};
}

LogicalResult mlir::attn::describeKernels(gpu::GPUModuleOp machine, const Chip &chip,
                                          rt::Manifest &manifest) {
  manifest.target = chip.name;
  manifest.ptxVersion = chip.ptxVersion;
  for (auto kernel : machine.getOps<LLVM::LLVMFuncOp>()) {
    auto parameters = tile::parametersAttr.get(kernel);
    if (!parameters)
      continue;
    std::optional<tile::KernelLaunch> described = tile::launchOf(kernel);
    if (!described)
      return kernel.emitError("expected a kernel to say how it is launched: tile.launch");
    rt::KernelInfo info;
    info.role = described->role;
    info.rowsPerWarp = described->rowsPerWarp;
    info.pieces = described->pieces;
    info.name = kernel.getName().str();
    info.threads = tile::threadsAttr.get(kernel).getInt();
    info.warps = info.threads / 32;
    info.sharedBytes = tile::sharedBytesAttr.get(kernel).getInt();
    info.blocksPerSM = tile::blocksPerSMAttr.get(kernel).getInt();
    if (auto schedule = tile::scheduleAttr.get(kernel)) {
      info.schedule = schedule.getKind() == tile::ScheduleKind::Wgmma ? rt::KernelInfo::Schedule::Wgmma
                                                                      : rt::KernelInfo::Schedule::Mma;
      info.rows = schedule.getRows();
      info.keys = schedule.getKeys();
      info.sequencesUpTo = schedule.getSequencesUpTo().value_or(0);
      if (auto align = tile::keyAlignAttr.get(kernel))
        info.keyAlign = align.getInt();
      if (numericsAttr.isOn(kernel) && info.role == rt::KernelInfo::Role::Attend) {
        rt::NumericsInfo numerics = numericsOf(schedule, info, manifest);
        if (manifest.numerics && *manifest.numerics != numerics)
          return kernel.emitError(
                     "has another numerics contract than the kernels before it: expected tiles of ")
                 << manifest.numerics->keys << " keys, and the same instructions";
        manifest.numerics = numerics;
        info.folds = !schedule.getSplitKeys();
      }
    }
    if (described->launch.grid == rt::PlanArray::ScoreTasks) {
      info.rows = rt::scoreTaskTokens;
      info.keys = manifest.groupSize();
    }
    if (described->launch.grid == rt::PlanArray::TokenSums)
      info.rows = rt::tokenSumTokens, info.keys = 1;
    for (auto parameter : parameters.getAsRange<tile::ParameterAttr>())
      info.params.push_back(parameterOf(parameter));
    if (auto maps = tile::tensorMapsAttr.get(kernel))
      for (auto map : maps.getAsRange<tile::TensorMapAttr>())
        if (!manifest.findTensorMap(map.getName().str()))
          manifest.tensorMaps.push_back(tensorMapOf(map));
    if (llvm::any_of(info.params, [](const rt::Parameter &each) { return each.name == rowSums; }))
      describeRowSums(manifest);
    described->launch.overlapsPrevious &= chip.overlapsLaunches;
    manifest.addKernel(std::move(info), std::move(described->launch));
  }
  return success();
}

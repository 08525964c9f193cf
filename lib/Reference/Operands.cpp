//===- Operands.cpp - The tensors of a problem ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Operands.h"

#include "attn/Support/Elements.h"

#include <numeric>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

namespace {
/// Reads tensors by name; the first error is kept in `status`, and later checks are skipped.
class Reader {
public:
  Reader(func::FuncOp func, const rt::TensorMap &tensors, bool first)
      : func(func), tensors(tensors), first(first) {}

  rt::Result<Operands> read() {
    // The parser has printed the diagnostics of the operation itself.
    FailureOr<Signature> signature = readSignature(func);
    FailureOr<Attends> attends = findAttends(func);
    if (failed(signature) || failed(attends) || (first && !attends->first))
      return rt::inputError("function '" + func.getName().str() + "' is no attention function");
    AttendOp attend = first ? attends->first : attends->last;
    operands.attend = attend;
    operands.queryHeads = attend.getQueryHeads();
    operands.keyHeads = attend.getKVHeads();
    operands.keyDim = attend.getKeyDim();
    operands.valueDim = attend.getValueDim();

    rt::DType dtype = elementOf(attend.getQueryType().getElementType()).dtype;
    if (const rt::Tensor *query = findFloats("q", dtype, {-1, operands.queryHeads, operands.keyDim})) {
      operands.rows = query->shape[0];
      operands.query = numbersOf(*query);
    }
    for (const Argument &argument : signature->arguments)
      if (argument.role == Role::Sinks)
        readSinks(argument);
      else if (argument.role == Role::Gate)
        readGate(argument);
      else if (argument.role == Role::OutputScale)
        readOutputScale(argument);
      else if (argument.role == Role::Tensor)
        readTable(argument);
    operands.seen.resize(operands.keyHeads);
    classNames.resize(operands.keyHeads);
    if (HeadClassesAttr classes = attend.getHeadClassesAttr())
      readClasses(classes);
    for (unsigned i = 0, e = attend.getRegions().size(); i != e && status; ++i) {
      unsigned index = cast<BlockArgument>(attend.getRegions()[i]).getArgNumber();
      readRegion(signature->arguments[index].name, attend.getRegionType(i), attend.getRegionVisibility(i),
                 attend.getRegionClass(i));
    }
    readPositions();
    if (!status)
      return status.error();
    return operands;
  }

private:
  void fail(std::string message) {
    if (status)
      status = rt::inputError(std::move(message));
  }

  /// Returns a tensor of this dtype, or of `other`, and of this shape, in which -1 stands for any size; null,
  /// with an error, if there is none.
  const rt::Tensor *find(const std::string &name, rt::DType dtype, std::vector<int64_t> shape,
                         std::optional<rt::DType> other = std::nullopt) {
    auto it = tensors.find(name);
    if (it == tensors.end()) {
      fail("tensor '" + name + "' is missing");
      return nullptr;
    }
    const rt::Tensor &tensor = it->second;
    bool fits = (tensor.dtype == dtype || tensor.dtype == other) && tensor.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i)
      fits = shape[i] == -1 || shape[i] == tensor.shape[i];
    if (fits)
      return &tensor;
    fail("tensor '" + name + "': expected " + std::string(rt::dtypeName(dtype)) + rt::shapeText(shape) +
         ", got " + std::string(rt::dtypeName(tensor.dtype)) + rt::shapeText(tensor.shape));
    return nullptr;
  }

  /// Returns the shape of a tensor. Sizes that tensors decide are -1; those of `like`, which has equally many
  /// tokens, are known.
  static std::vector<int64_t> shapeOf(const rt::StoreTensor &tensor, int64_t heads,
                                      const rt::StoreTensor *like = nullptr,
                                      const rt::Tensor *known = nullptr) {
    std::vector<int64_t> shape;
    for (const rt::StoreDim &dim : tensor.dims) {
      shape.push_back(!dim.size ? dim.value : *dim.size == rt::StoreSize::Heads ? heads : -1);
      for (size_t axis = 0; known && shape.back() == -1 && axis < like->dims.size(); ++axis)
        if (like->dims[axis].size == dim.size)
          shape.back() = known->shape[axis];
    }
    return shape;
  }

  /// Returns floats, which may also be given as f64 without rounding.
  const rt::Tensor *findFloats(const std::string &name, rt::DType dtype, std::vector<int64_t> shape) {
    return find(name, dtype, std::move(shape), rt::DType::F64);
  }

  static std::vector<double> numbersOf(const rt::Tensor &tensor) {
    if (tensor.dtype == rt::DType::F64)
      return tensor.toDoubles();
    std::vector<float> narrow(tensor.elements());
    rt::RowDecoder(rt::Format::plain(tensor.dtype)).decode(tensor.bytes.data(), nullptr, narrow);
    return {narrow.begin(), narrow.end()};
  }

  void readSinks(const Argument &argument) {
    if (const rt::Tensor *sinks = findFloats(argument.name, rt::DType::F32, {operands.queryHeads}))
      operands.sinks = sinks->toDoubles();
  }

  void readGate(const Argument &argument) {
    auto type = cast<RankedTensorType>(argument.type);
    std::vector<int64_t> shape(type.getShape());
    shape.front() = operands.rows;
    if (const rt::Tensor *gate = findFloats(argument.name, elementOf(type.getElementType()).dtype, shape))
      operands.gate = numbersOf(*gate);
  }

  void readOutputScale(const Argument &argument) {
    if (const rt::Tensor *scale = findFloats(argument.name, rt::DType::F32, {1}))
      operands.outputScale = scale->get(0);
  }

  void readTable(const Argument &argument) {
    std::vector<int64_t> shape;
    for (int64_t size : cast<RankedTensorType>(argument.type).getShape())
      shape.push_back(ShapedType::isDynamic(size) ? -1 : size);
    const rt::Tensor *tensor = findFloats(argument.name, rt::DType::F32, shape);
    if (tensor && tensor->elements() == 0)
      fail("tensor '" + argument.name +
           "': expected at least 1 in each dimension, as score functions read elements of it, got " +
           rt::shapeText(tensor->shape));
    else if (tensor)
      operands.tables[argument.index] = {argument.name, tensor->shape, tensor->toDoubles()};
  }

  std::vector<int32_t> integers(const std::string &name, std::vector<int64_t> shape) {
    const rt::Tensor *tensor = find(name, rt::DType::I32, std::move(shape));
    if (!tensor)
      return {};
    auto values = tensor->as<int32_t>();
    return {values.begin(), values.end()};
  }

  /// Returns the rows where each sequence starts, and the end; by default every row is a sequence.
  std::vector<int32_t> queryStart() {
    if (tensors.count("q_start"))
      return integers("q_start", {-1});
    std::vector<int32_t> start(operands.rows + 1);
    std::iota(start.begin(), start.end(), 0);
    return start;
  }

  void readRegion(const std::string &name, KVType type, VisibilityAttr visibility, StringAttr headClass) {
    KVRegion region;
    region.name = name;
    region.type = type;
    region.visibility = visibility;
    for (StringAttr of : classNames)
      region.headPlaces.push_back(!headClass || of == headClass ? region.heads++ : -1);
    int64_t heads = region.heads;
    region.store = storeOf(type);
    region.store.heads = heads;
    region.keys.stored = region.store.keys, region.values.stored = region.store.values;
    const std::vector<rt::StoreTensor> data = region.store.data(); // the keys' elements first
    for (const rt::StoreTensor &tensor : data) {
      bool lines = tensor.content == rt::StoreTensor::Content::Lines;
      KVRegion::Part &part = tensor.name.front() == region.store.keys.letter ? region.keys : region.values;
      const bool isPlain = part.stored.format.isPlain();
      const rt::Tensor *found = find(name + "." + tensor.name, tensor.dtype,
                                     shapeOf(tensor, heads, &data[0], lines ? region.keys.codes : nullptr),
                                     isPlain ? std::optional(rt::DType::F64) : std::nullopt);
      (tensor.content == rt::StoreTensor::Content::Codes ? part.codes
       : lines                                           ? part.meta
                                                         : part.shared) = found;
    }
    if (region.store.isLatent())
      region.values.codes = region.keys.codes, region.values.meta = region.keys.meta,
      region.values.shared = region.keys.shared;
    for (KVRegion::Part *part : {&region.keys, &region.values})
      if (part->codes && part->codes->dtype != rt::DType::F64)
        part->decoder.emplace(part->stored.format);
    for (const rt::StoreTensor &tensor : region.store.tables())
      if (region.store.table() && tensor.name == rt::tableName(*region.store.table()))
        region.table = find(name + "." + tensor.name, tensor.dtype, shapeOf(tensor, heads));
    int64_t instances = 0;
    if (region.table && type.getStore() == Store::Packed && !type.getRagged() &&
        !tensors.count(name + ".lengths")) {
      auto start = region.table->as<int32_t>();
      for (size_t i = 1; i < start.size(); ++i)
        region.lengths.push_back(start[i] - start[i - 1]);
      instances = region.lengths.size();
    } else if (type.getStore() == Store::Dense && !type.getRagged() && region.keys.codes &&
               !tensors.count(name + ".lengths")) {
      instances = region.keys.codes->shape[0];
      region.lengths.assign(instances, region.keys.codes->shape[1]);
    } else if (const rt::Tensor *lengths =
                   find(name + ".lengths", rt::DType::I32,
                        type.getRagged() ? std::vector<int64_t>{-1, heads} : std::vector<int64_t>{-1})) {
      instances = lengths->shape[0];
      region.lengths.assign(lengths->as<int32_t>().begin(), lengths->as<int32_t>().end());
    }
    region.pos0 = tensors.count(name + ".pos0") ? integers(name + ".pos0", {instances})
                                                : std::vector<int32_t>(instances, 0);
    readRows(name, region);
    if (status)
      status = region.checkTokens();
    operands.regions.push_back(std::move(region));
  }

  /// Reads the rows of instances; by default instance i is private to sequence i.
  void readRows(const std::string &name, KVRegion &region) {
    int64_t instances = region.instances();
    if (tensors.count(name + ".rows")) {
      std::vector<int32_t> ranges = integers(name + ".rows", {instances, 2});
      for (size_t i = 0; i + 1 < ranges.size(); i += 2) {
        region.rowFirst.push_back(ranges[i]);
        region.rowLast.push_back(ranges[i + 1]);
      }
    } else {
      std::vector<int32_t> start = queryStart();
      if (int64_t(start.size()) != instances + 1)
        return fail("tensor '" + name + ".rows' is missing, and there are " + std::to_string(instances) +
                    " instances for " + std::to_string(int64_t(start.size()) - 1) + " sequences");
      region.rowFirst.assign(start.begin(), start.end() - 1);
      region.rowLast.assign(start.begin() + 1, start.end());
    }
    for (size_t i = 0; i < region.rowFirst.size(); ++i)
      if (region.rowFirst[i] < 0 || region.rowLast[i] > operands.rows)
        return fail("rows of instance " + std::to_string(i) + " of '" + name +
                    "': expected a range inside [0, " + std::to_string(operands.rows) + "), got [" +
                    std::to_string(region.rowFirst[i]) + ", " + std::to_string(region.rowLast[i]) + ")");
  }

  void readClasses(HeadClassesAttr classes) {
    for (auto [head, headClass] : llvm::enumerate(integers("classes", {operands.keyHeads}))) {
      if (headClass < 0 || headClass >= int64_t(classes.size()))
        return fail("tensor 'classes': expected a class from 0 to " + std::to_string(classes.size() - 1) +
                    " for KV head " + std::to_string(head) + ", got " + std::to_string(headClass));
      operands.seen[head] = classes.getVisibility()[headClass];
      classNames[head] = classes.getNames()[headClass];
    }
  }

  /// Reads positions. By default the rows of a sequence are its last: they end where its private instance
  /// ends or, without one, where the last instance that all of them see ends.
  void readPositions() {
    if (!status)
      return;
    std::vector<int32_t> start = operands.queryStarts = queryStart();
    for (size_t s = 0; s + 1 < start.size(); ++s)
      if (start[s] < 0 || start[s + 1] > operands.rows || start[s] > start[s + 1])
        return fail("tensor 'q_start': expected rows that ascend from 0 to " + std::to_string(operands.rows));
    if (tensors.count("q_pos")) {
      operands.queryPositions = integers("q_pos", {operands.rows});
      return;
    }
    operands.queryPositions.assign(operands.rows, 0);
    for (size_t s = 0; s + 1 < start.size(); ++s) {
      int32_t first = start[s], last = start[s + 1];
      std::optional<int64_t> privateEnd, sharedEnd;
      for (const KVRegion &region : operands.regions)
        for (size_t i = 0; i < region.instances(); ++i) {
          if (region.rowFirst[i] > first || region.rowLast[i] < last)
            continue;
          int64_t end = int64_t(region.pos0[i]) + region.longest(i);
          bool isPrivate = region.rowFirst[i] == first && region.rowLast[i] == last;
          std::optional<int64_t> &slot = isPrivate ? privateEnd : sharedEnd;
          slot = std::max(slot.value_or(end), end);
        }
      int64_t end = privateEnd ? *privateEnd : sharedEnd.value_or(0);
      for (int32_t row = first; row < last; ++row)
        operands.queryPositions[row] = int32_t(end - last + row);
    }
  }

  func::FuncOp func;
  const rt::TensorMap &tensors;
  bool first;
  Operands operands;
  SmallVector<StringAttr> classNames; ///< by KV head; null without classes
  rt::Status status;
};
} // namespace

rt::Result<Operands> reference::readOperands(func::FuncOp func, const rt::TensorMap &tensors, bool first) {
  return Reader(func, tensors, first).read();
}

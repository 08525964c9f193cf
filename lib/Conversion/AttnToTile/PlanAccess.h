//===- PlanAccess.h - How kernels read a plan -------------------*- C++ -*-===//
//
// Arrays, records and their fields go by the names of attn_rt/PlanRecords.def. A
// record that has been read is a struct of values; loops carry its fields one by
// one, in an order that only this file sees.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PLANACCESS_H
#define ATTN_CONVERSION_ATTNTOTILE_PLANACCESS_H

#include "Kernel.h"

#include "attn_rt/PlanRecords.h"

namespace mlir::attn {

using PlanArray = ::attn::rt::PlanArray;
using Task = ::attn::rt::PlanTaskOf<Value>;
using Segment = ::attn::rt::PlanSegmentOf<Value>;
using Start = ::attn::rt::PlanStartOf<Value>;

/// The buffer of an array, a parameter of the kernel.
inline Value planArray(KernelBuilder &b, PlanArray array) {
  std::string_view name = ::attn::rt::planArrayName(array);
  bool words = ::attn::rt::planArrayLayout(array).dtype == ::attn::rt::DType::I32;
  return b.buffer(StringRef(name.data(), name.size()), words ? Type(b.getI32Type()) : b.getF32Type());
}

/// The fields of records behind each other, as loops carry them.
template <typename... Records> SmallVector<Value> flatten(const Records &...records) {
  SmallVector<Value> fields;
  (llvm::append_range(fields, ::attn::rt::fieldsOf(records)), ...);
  return fields;
}

/// The record whose fields are the first of `fields`, which are dropped.
template <typename Record> Record takeRecord(ValueRange &fields) {
  Record record = ::attn::rt::recordOf<Record>(fields);
  fields = fields.drop_front(Record::usedWords);
  return record;
}

/// Number `index` of the records of a kind.
template <typename Record> Record readRecord(KernelBuilder &b, Value index) {
  Value records = planArray(b, ::attn::rt::planArrayOf<Record>());
  return ::attn::rt::recordOf<Record>(b.record(records, index, Record::usedWords));
}

/// The same; zeros where it does not exist.
template <typename Record> Record readRecordIf(KernelBuilder &b, Value exists, Value index) {
  Type i32 = b.getI32Type();
  auto branch =
      scf::IfOp::create(b, SmallVector<Type>(Record::usedWords, i32), exists, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, flatten(readRecord<Record>(b, index)));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, SmallVector<Value>(Record::usedWords, b.i32(0)));
  return ::attn::rt::recordOf<Record>(branch.getResults());
}

} // namespace mlir::attn

#endif

//===- PlanAccess.h - How kernels read a plan -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays, records and their fields have the names of
// attn_rt/artifact/PlanRecords.def. A record that has been read is a struct of
// values.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_PLANACCESS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_PLANACCESS_H

#include "Kernel.h"

#include "attn_rt/artifact/PlanRecords.h"

namespace mlir::attn {

using PlanArray = ::attn::rt::PlanArray;
using Task = ::attn::rt::PlanTaskOf<Value>;
using Segment = ::attn::rt::PlanSegmentOf<Value>;
using Start = ::attn::rt::PlanStartOf<Value>;
using ScoreTask = ::attn::rt::PlanScoreTaskOf<Value>;
using TokenTask = ::attn::rt::PlanTokenTaskOf<Value>;
using Finding = ::attn::rt::PlanFindingOf<Value>;
using TokenSum = ::attn::rt::PlanTokenSumOf<Value>;

/// The buffer of an array, a parameter of the kernel.
inline Value planArray(KernelBuilder &b, PlanArray array) {
  std::string_view name = ::attn::rt::planArrayName(array);
  bool words = ::attn::rt::planArrayLayout(array).dtype == ::attn::rt::DType::I32;
  return b.buffer(StringRef(name.data(), name.size()), words ? Type(b.getI32Type()) : b.getF32Type());
}

/// Reads record `index` of a kind. A loop's first iteration takes `first`, if given, instead of reading.
template <typename Record> Record readRecord(KernelBuilder &b, Value index, ArrayRef<Value> first = {}) {
  Value records = planArray(b, ::attn::rt::planArrayOf<Record>());
  return ::attn::rt::recordOf<Record>(b.record(records, index, Record::usedWords, first));
}

} // namespace mlir::attn

#endif

//===- OnlineOpInterface.td - What an operation does to a tile -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel walks the plan around online operations without knowing what any of them computes. Each operation says
// that itself, in one of two forms, for the two ways in which a warp can hold a state:
//
//   fragments   sixteen rows on the tensor cores: maximum and sum per row, the
//               accumulator a fragment of rows and features
//   lanes       one row, its columns spread over the lanes
//
// An operation appends tile operations at the builder of the expansion and tells the expansion which values stand for
// its results. It sees its operands the same way. Loops that carry states, and their results, are not its business.
//
// An operation other than attn.init, attn.update and attn.merge that takes and gives states stands after the loops
// over tokens. A kernel may see only some of the tokens of its rows: warps share them, a plan splits tasks, and an
// operation before an update has its state merged with what the update sees. Every part does the operation once; the
// kernel that merges parts does not. So it must not matter whether the operation stands before a merge or after it:
//
//   op(merge(a, b)) = merge(op(a), op(b))     op(the empty state) = the empty state
//
// Kernels on mma take an operation that says so (commutesWithMerge) wherever it stands. Kernels on wgmma have one
// loop for all updates, and take it after the last update. It needs no form on lanes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ONLINEOPINTERFACE_TD
#define ATTN_CONVERSION_ONLINEOPINTERFACE_TD

include "mlir/IR/OpBase.td"

def OnlineOpInterface : OpInterface<"OnlineOpInterface"> {
  let cppNamespace = "::mlir::attn";
  let description = [{
    How an online operation becomes tile operations: see the file's comment. An operation without one of the forms emits
    an error that says so.
  }];
  let methods = [
    InterfaceMethod<"Expands to operations on fragments.", "::llvm::LogicalResult", "expandOnFragments",
                    (ins "::mlir::attn::FragmentExpansion &":$expansion), [{}], [{
      return $_op->emitOpError("has no form on fragments of rows");
    }]>,
    InterfaceMethod<"Expands to operations on one row of a warp.", "::llvm::LogicalResult", "expandOnLanes",
                    (ins "::mlir::attn::LaneExpansion &":$expansion), [{}], [{
      return $_op->emitOpError("has no form where a warp holds one row");
    }]>,
    InterfaceMethod<"Whether an operation on states commutes with merging them: see the file's comment.",
                    "bool", "commutesWithMerge", (ins), [{}], [{ return false; }]>,
  ];
}

#endif

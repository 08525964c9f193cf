//===- OnlineOpInterface.td - What an operation does to a tile -*- tablegen -*-===//
//
// A kernel walks the plan around online operations, and knows of none of them
// what it computes. That each says itself, in one of two forms, for the two ways
// in which a warp can hold a state:
//
//   fragments   sixteen rows on the tensor cores: maximum and sum per row, the
//               accumulator a fragment of rows and features
//   lanes       one row, its columns spread over the lanes
//
// An operation appends tile operations at the builder of the expansion and tells
// the expansion which values stand for its results. It sees its operands the same
// way. Loops that carry states, and their results, are none of its business.
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
  ];
}

#endif

//===- ManagePages.cpp - The kernels of operations on tables of pages -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PageKernel.h"

#include "attn/Conversion/Passes.h"

#include "AttnToTile/Kernel/KernelText.h"

namespace mlir::attn {
#define GEN_PASS_DEF_MANAGEPAGESPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

constexpr StringLiteral compactTokens =
#include "CompactTokens.mlir.inc"
    ;
constexpr StringLiteral reviseTokens =
#include "ReviseTokens.mlir.inc"
    ;
constexpr StringLiteral lists =
#include "Lists.mlir.inc"
    ;

struct ManagePages : mlir::attn::impl::ManagePagesPassBase<ManagePages> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (findPageOp(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      Operation *op = findPageOp(function);
      if (auto manage = dyn_cast<ManagePagesOp>(op))
        for (auto [suffix, role] : {std::pair("_count", PageKernel::Role::CountPages),
                                    std::pair("_release", PageKernel::Role::ReleasePages),
                                    std::pair("_take", PageKernel::Role::TakePages)})
          PageKernel(manage, makeKernel(function, (function.getName() + suffix).str()), role).run();
      else if (auto revise = dyn_cast<ReviseTokensOp>(op))
        reviseKernel(revise, function);
      else
        compactKernel(cast<CompactTokensOp>(op), function);
      function.erase();
    }
  }

  void compactKernel(CompactTokensOp compact, func::FuncOp function) {
    KernelText text(&getContext(), {compactTokens, lists}, "CompactTokens.mlir");
    text.define("page_tokens", compact.getPageTokens());
    text.define("end", compact.getRight() ? 1 : 0);
    OpBuilder builder(function);
    text.instantiate(builder, (function.getName() + "_moves").str());
    ++kernels;
  }

  void reviseKernel(ReviseTokensOp revise, func::FuncOp function) {
    KernelText text(&getContext(), {reviseTokens, lists}, "ReviseTokens.mlir");
    text.define("left", revise.getLeft());
    text.define("right", revise.getRight());
    text.define("window", revise.getWindow());
    text.define("counted", revise.getRows());
    text.define("rank", revise.getRank());
    text.define("decide", revise.getDecide());
    OpBuilder builder(function);
    text.instantiate(builder, (function.getName() + "_lists").str());
    ++kernels;
  }

  func::FuncOp makeKernel(func::FuncOp function, StringRef name) {
    OpBuilder builder(function);
    auto kernel = func::FuncOp::create(builder, function.getLoc(), name, builder.getFunctionType({}, {}));
    kernel.addEntryBlock();
    ++kernels;
    return kernel;
  }
};

} // namespace

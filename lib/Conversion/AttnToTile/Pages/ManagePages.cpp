//===- ManagePages.cpp - The kernels of operations on tables of pages -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Tile/IR/Tile.h"

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
constexpr StringLiteral managePages =
#include "ManagePages.mlir.inc"
    ;
constexpr StringLiteral reviseTokens =
#include "ReviseTokens.mlir.inc"
    ;
constexpr StringLiteral lists =
#include "Lists.mlir.inc"
    ;
constexpr StringLiteral mergeStates =
#include "MergeStates.mlir.inc"
    ;
constexpr StringLiteral pairsOfBF16 =
#include "PairsOfBF16.mlir.inc"
    ;
constexpr StringLiteral pairsOfF16 =
#include "PairsOfF16.mlir.inc"
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
        manageKernels(manage, function);
      else if (auto revise = dyn_cast<ReviseTokensOp>(op))
        reviseKernel(revise, function);
      else if (auto merge = dyn_cast<MergeStatesOp>(op))
        stateKernel("merge_states", merge.getRanks(), merge.getElement(), function);
      else if (auto exchange = dyn_cast<ExchangeStatesOp>(op))
        stateKernel("exchange_states", exchange.getRanks(), exchange.getElement(), function);
      else
        compactKernel(cast<CompactTokensOp>(op), function);
      function.erase();
    }
  }

  void manageKernels(ManagePagesOp manage, func::FuncOp function) {
    KernelText text(&getContext(), {managePages}, "ManagePages.mlir");
    text.define("left_rest", manage.getLeft() - 1);
    text.define("left_tokens", manage.getLeft());
    text.define("right_rest", manage.getRight() - 1);
    text.define("right_tokens", manage.getRight());
    OpBuilder builder(function);
    for (auto [kernel, suffix] : {std::pair("count_pages", "_count"), std::pair("release_pages", "_release"),
                                  std::pair("take_pages", "_take")}) {
      text.instantiate(builder, kernel, (function.getName() + suffix).str());
      ++kernels;
    }
  }

  void compactKernel(CompactTokensOp compact, func::FuncOp function) {
    KernelText text(&getContext(), {compactTokens, lists}, "CompactTokens.mlir");
    text.define("page_tokens", compact.getPageTokens());
    text.define("end", compact.getRight() ? 1 : 0);
    OpBuilder builder(function);
    text.instantiate(builder, "compact_tokens", (function.getName() + "_moves").str());
    ++kernels;
  }

  void stateKernel(StringRef kernel, int64_t ranks, Type element, func::FuncOp function) {
    KernelText text(&getContext(), {mergeStates, element.isBF16() ? pairsOfBF16 : pairsOfF16},
                    "MergeStates.mlir");
    text.define("ranks", ranks);
    OpBuilder builder(function);
    text.instantiate(builder, kernel, (function.getName() + "_states").str());
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
    text.instantiate(builder, "revise_tokens", (function.getName() + "_lists").str());
    ++kernels;
  }
};

} // namespace

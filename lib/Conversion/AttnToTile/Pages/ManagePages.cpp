//===- ManagePages.cpp - The kernels of operations on tables of pages -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompactKernel.h"
#include "PageKernel.h"
#include "ReviseKernel.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_MANAGEPAGESPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

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
        ReviseKernel(revise, makeKernel(function, (function.getName() + "_lists").str())).run();
      else
        CompactKernel(cast<CompactTokensOp>(op), makeKernel(function, (function.getName() + "_moves").str()))
            .run();
      function.erase();
    }
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

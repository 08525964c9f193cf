//===- ManagePages.cpp - The kernels that manage pages --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PageKernel.h"

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
      if (findManagePages(function))
        functions.push_back(function);
    using Role = ::attn::rt::KernelInfo::Role;
    for (func::FuncOp function : functions) {
      ManagePagesOp manage = findManagePages(function);
      OpBuilder builder(function);
      for (auto [suffix, role] :
           {std::pair("_count", Role::CountPages), std::pair("_release", Role::ReleasePages),
            std::pair("_take", Role::TakePages)}) {
        auto kernel = func::FuncOp::create(builder, function.getLoc(), (function.getName() + suffix).str(),
                                           builder.getFunctionType({}, {}));
        kernel.addEntryBlock();
        PageKernel(manage, kernel, role).run();
      }
      function.erase();
    }
  }
};

} // namespace

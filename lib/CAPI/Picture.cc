//===- Picture.cc - Plans as pictures -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn-c/Compiler.h"

#include "attn_rt/capi/Guard.h"
#include "attn_rt/capi/Objects.h"
#include "attn_rt/picture/Picture.h"

AttnStatus attnPlanSvg(const AttnPlan *plan, AttnBytes **svg) {
  using namespace attn::rt;
  return capi::guarded([&] { return capi::describePlan(plan, svg, drawPlan); });
}

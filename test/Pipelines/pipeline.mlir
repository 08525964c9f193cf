// RUN: attn-opt %s --attn-pipeline --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --match-full-lines --strict-whitespace

// The order of passes, pinned: a change here is a decision.

//      CHECK:builtin.module(
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    attn-check-signature
// CHECK-NEXT:  ),
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    attn-normalize
// CHECK-NEXT:  ),
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    attn-split-regions
// CHECK-NEXT:  ),
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    canonicalize{  max-iterations=10 max-num-rewrites=-1 region-simplify=normal test-convergence=false top-down=true}
// CHECK-NEXT:  ),
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    attn-choose-schedule{schedule=auto target=sm_90a}
// CHECK-NEXT:  ),
// CHECK-NEXT:  attn-make-kernels,
// CHECK-NEXT:  gpu.module(
// CHECK-NEXT:    attn-differentiate,
// CHECK-NEXT:    attn-write-plan,
// CHECK-NEXT:    attn-weigh-scores,
// CHECK-NEXT:    attn-sum-parts,
// CHECK-NEXT:    attn-walk-plan,
// CHECK-NEXT:    attn-stage-operands,
// CHECK-NEXT:    attn-expand-online,
// CHECK-NEXT:    attn-lower-scores,
// CHECK-NEXT:    attn-lower-group-sums,
// CHECK-NEXT:    attn-lower-group-scores,
// CHECK-NEXT:    attn-lower-accumulate,
// CHECK-NEXT:    attn-lower-dequantize,
// CHECK-NEXT:    attn-lower-score-fn,
// CHECK-NEXT:    attn-lower-mask,
// CHECK-NEXT:    attn-lower-list-mask,
// CHECK-NEXT:    attn-lower-softmax-step,
// CHECK-NEXT:    attn-lower-rescale,
// CHECK-NEXT:    attn-lower-weights,
// CHECK-NEXT:    attn-lower-score-grad,
// CHECK-NEXT:    attn-lower-lift,
// CHECK-NEXT:    attn-lower-scale-weights,
// CHECK-NEXT:    attn-walk-rows{target=sm_90a},
// CHECK-NEXT:    attn-expand-rows,
// CHECK-NEXT:    attn-manage-pages,
// CHECK-NEXT:    tile-spread-checks,
// CHECK-NEXT:    tile-specialize-warps,
// CHECK-NEXT:    tile-unswitch-loops,
// CHECK-NEXT:    tile-insert-barriers,
// CHECK-NEXT:    tile-overlap-mmas,
// CHECK-NEXT:    tile-start-early,
// CHECK-NEXT:    tile-ping-pong,
// CHECK-NEXT:    tile-look-ahead,
// CHECK-NEXT:    tile-read-ahead,
// CHECK-NEXT:    tile-infer-layouts,
// CHECK-NEXT:    tile-pipeline-copies,
// CHECK-NEXT:    tile-allocate-shared,
// CHECK-NEXT:    tile-hoist-uniform,
// CHECK-NEXT:    cse,
// CHECK-NEXT:    tile-fold-constants
// CHECK-NEXT:  ),
// CHECK-NEXT:  gpu.module(
// CHECK-NEXT:    tile-skip-full-masks,
// CHECK-NEXT:    tile-unroll-loops,
// CHECK-NEXT:    tile-to-machine,
// CHECK-NEXT:    machine-to-llvm
// CHECK-NEXT:  )
// CHECK-NEXT:)
module {}

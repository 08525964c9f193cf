// RUN: attn-opt %s --attn-pipeline --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --match-full-lines --strict-whitespace

// The order of passes, pinned: a change here is a decision.

//      CHECK:Pass Manager with {{[0-9]+}} passes:
// CHECK-NEXT:builtin.module(
// CHECK-NEXT:  func.func(
// CHECK-NEXT:    attn-check-signature,
// CHECK-NEXT:    attn-normalize
// CHECK-NEXT:  ),
module {}

// RUN: attn-opt %s --attn-lower-rescale --attn-lower-weights --attn-lower-lift --mlir-pass-statistics -mlir-pass-statistics-display=list -o /dev/null 2>&1 | FileCheck %s

// RUN: attn-opt %s --emit=tile --target=sm_90a -o - | FileCheck %s

// A tile of 64 rows on wgmma has lines past the task's last row, whose queries are zeros. Their unit is the largest number
// from the start, so their weights are zeros as well. Tiles of more rows are full but for the last one.
// CHECK-LABEL: func.func @attention_rows64
// CHECK-DAG: %[[LEAST:.*]] = arith.constant 0xFF800000 : f32
// CHECK-DAG: %[[MOST:.*]] = arith.constant 3.40282347E+38 : f32
// CHECK: %[[LINES:.*]] = tile.coordinates %c0_i32 : <[query 16], i32, row>
// CHECK: %[[UNIT:.*]] = tile.map %[[LINES]] (%[[LINE:.*]]: i32)
// CHECK: %[[IS:.*]] = arith.cmpi slt, %[[LINE]], %{{.*}}
// CHECK: arith.select %[[IS]], %[[LEAST]], %[[MOST]]
// CHECK: scf.for {{.*}} = %[[UNIT]]
// CHECK-LABEL: func.func @attention_rows128
// CHECK-NOT: tile.coordinates {{.*}} <[query
!query = tensor<?x32x128xbf16>
!paged = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
func.func @attention(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                     %kv: !paged {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> !query
    attributes {attn.numerics = "row"} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !query, !paged -> !query
  return %o : !query
}

// RUN: attn-opt %s --emit=manifest --target=sm_80 > %t.json
// RUN: FileCheck %s < %t.json
// RUN: FileCheck %s --check-prefix=NONE < %t.json
// RUN: python3 -c 'import json, sys; json.load(open(sys.argv[1]))' %t.json

// The hash is over content: equal problems have equal hashes, another target has another.
// RUN: attn-opt %s --emit=manifest --target=sm_80 | cmp - %t.json
// RUN: attn-opt %s --emit=manifest --target=sm_90a | grep content_hash > %t.other
// RUN: not grep -f %t.other %t.json

// NONE: "head_classes": []
// CHECK: "approximate": false
// CHECK: "arguments": [
// CHECK: "dims": [
// CHECK-NEXT: "rows"
// CHECK-NEXT: 28
// CHECK-NEXT: 192
// CHECK: "dtype": "f16"
// CHECK-NEXT: "name": "q"
// CHECK-NEXT: "role": "query"
// CHECK: "key_dim": 192
// CHECK-NEXT: "key_format": "f16"
// CHECK-NEXT: "kv_heads": 4
// CHECK-NEXT: "name": "context"
// CHECK-NEXT: "role": "kv"
// CHECK-NEXT: "store": "dense"
// CHECK-NEXT: "value_dim": 128
// CHECK: "name": "response"
// CHECK-NEXT: "page": 64
// CHECK-NEXT: "role": "kv"
// CHECK-NEXT: "store": "paged"
// CHECK: "name": "sink_logits"
// CHECK-NEXT: "role": "sink"
// CHECK: 28
// CHECK-NEXT: "table rows"
// CHECK: "name": "bias"
// CHECK-NEXT: "role": "tensor"
// CHECK: "content_hash": "{{[0-9a-f]+}}"
// Ends are numbered in the order of the text, through all regions.
// CHECK: "ends": [
// CHECK-NEXT: 100
// CHECK-NEXT: 64
// CHECK-NEXT: 256
// CHECK: "entry": "everything"
// CHECK: "format": 5
// CHECK: "kernels": [
// CHECK: "name": "everything_rows16"
// CHECK: "params": [
// CHECK: "name": "q_pos"
// CHECK: "kind": "scale"
// CHECK: "name": "context.k"
// CHECK: "kind": "dim"
// CHECK-NEXT: "name": "context.k.stride2"
// CHECK-NEXT: "type": "i32"
// CHECK: "name": "response.k_pages"
// CHECK: "index": 0
// CHECK-NEXT: "kind": "end"
// CHECK: "role": "attend"
// CHECK-NEXT: "rows": 16
// CHECK-NEXT: "schedule": "mma"
// CHECK-NEXT: "shared_bytes": {{[1-9][0-9]*}}
// CHECK-NEXT: "threads": 128
// CHECK-NEXT: "warps": 4
// CHECK: "name": "everything_rows{{64|128}}"
// CHECK: "blocks_per_sm": 5
// CHECK-NEXT: "name": "everything_merge"
// CHECK: "name": "plan.merge_rows"
// CHECK: "pieces": 1
// CHECK-NEXT: "role": "merge"
// CHECK-NEXT: "rows_per_warp": 1
// CHECK-NEXT: "shared_bytes": 0
// CHECK: "key_dim": 192
// CHECK: "kv_heads": 4
// A run is a launch of one of the attend kernels, and of the merge if there is something to merge.
// CHECK: "launches": [
// CHECK-NEXT: {
// CHECK-NEXT: "grid": "plan.starts"
// CHECK-NEXT: "kernels": [
// CHECK-NEXT: "everything_rows16"
// CHECK-NEXT: "everything_rows{{64|128}}"
// CHECK-NEXT: ]
// CHECK-NEXT: "overlaps_previous": false
// CHECK-NEXT: "when": "always"
// CHECK: "grid": "plan.merge_rows"
// CHECK-NEXT: "kernels": [
// CHECK-NEXT: "everything_merge"
// CHECK-NEXT: ]
// CHECK-NEXT: "overlaps_previous": false
// CHECK-NEXT: "when": "filled"
// CHECK: "operands": [
// CHECK: "argument": "context"
// CHECK: "end": 0
// CHECK-NEXT: "kind": "window"
// CHECK: "argument": "response"
// CHECK: "kind": "or"
// CHECK: "end": 1
// CHECK-NEXT: "kind": "sink"
// CHECK: "end": 2
// CHECK-NEXT: "kind": "recent"
// The fields of a plan that the kernels read, one by one; other fields are absent.
// CHECK: "plan": {
// CHECK-NEXT: "arrays": [
// CHECK-NOT: plan.block_tasks
// CHECK: "fields": [
// CHECK-NEXT: "task.packedBegin"
// CHECK: "tasksBegin"
// CHECK-NEXT: "tasksEnd"
// CHECK-NEXT: ]
// CHECK-NEXT: "name": "plan.starts"
// CHECK-NEXT: "words": 32
// CHECK-NOT: plan.slots
// CHECK: "packedBegin"
// CHECK: "name": "plan.tasks"
// CHECK-NEXT: "words": 8
// CHECK: "dtype": "i32"
// CHECK-NEXT: "name": "plan.merge_start"
// CHECK: "dtype": "f32"
// CHECK-NEXT: "name": "partial.o"
// CHECK: "problem": "{{.*}}attn.attend
// CHECK: "producer": "attn {{.*}} (LLVM 22
// CHECK: "ptx_version": 70
// CHECK: "q_heads": 28
// CHECK: "results": [
// CHECK: "rows"
// CHECK-NEXT: 28
// CHECK-NEXT: 128
// CHECK-NEXT: ]
// CHECK-NEXT: "dtype": "f16"
// CHECK-NEXT: "name": "o"
// CHECK: "rows"
// CHECK-NEXT: 28
// CHECK-NEXT: ]
// CHECK-NEXT: "dtype": "f32"
// CHECK-NEXT: "name": "lse"
// CHECK: "scale": 0.125
// CHECK: "schedule": "mma"
// CHECK: "sink_logits": true
// CHECK: "target": "sm_80"
// CHECK: "value_dim": 128
!query = tensor<?x28x192xf16>
!output = tensor<?x28x128xf16>
!context = !attn.kv<dense, heads = 4, dim = 192, value_dim = 128, key = f16, value = f16>
!response = !attn.kv<paged<64>, heads = 4, dim = 192, value_dim = 128, key = f16, value = f16>
func.func @everything(%q: !query {attn.name = "q"}, %context: !context {attn.name = "context"},
                      %response: !response {attn.name = "response"}, %s: tensor<28xf32> {attn.name = "sink_logits"},
                      %bias: tensor<28x?xf32> {attn.name = "bias", attn.dims = ["table rows"]})
    -> (!output, tensor<?x28xf32>) {
  %o, %lse = attn.attend %q over (%context see window(100)), (%response see sink(64) | recent(256)) scale 0.125 sinks %s
    score {
    ^bb0(%x: f32, %head: i32, %q_pos: i32, %k_pos: i32):
      %b = attn.read %bias[%head, %k_pos] : tensor<28x?xf32>
      %y = arith.addf %x, %b : f32
      attn.yield %y : f32
    } : !query, !context, !response, tensor<28xf32> -> !output, tensor<?x28xf32>
  return %o, %lse : !output, tensor<?x28xf32>
}

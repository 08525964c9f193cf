// RUN: attn-opt %s | attn-opt | FileCheck %s
// Every operation prints as it is parsed.

!queries = !tile.shared<query 16, feature 64, bf16, swizzled>
!keys = !tile.shared<key 32, feature 64, bf16, swizzled>
!acc = !tile.fragment<[query 16, feature 64], f32, acc>
!scores = !tile.fragment<[query 16, key 32], f32, acc>
!rows = !tile.fragment<[query 16], f32, row>

// CHECK-LABEL: @uniform
func.func @uniform(%b: !tile.buffer<i32>, %o: !tile.buffer<bf16>, %i: i32, %j: i64, %x: f32) {
  // CHECK: tile.block_id : i32
  %0 = tile.block_id : i32
  // CHECK: tile.block_count : i32
  %1 = tile.block_count : i32
  // CHECK: tile.warp_id : i32
  %2 = tile.warp_id : i32
  // CHECK: tile.lane_id : i32
  %3 = tile.lane_id : i32
  // CHECK: tile.read %{{.*}}[%{{.*}}] : <i32> -> i32
  %4 = tile.read %b[%j] : <i32> -> i32
  // CHECK: tile.record %{{.*}}[%{{.*}}] : <i32> -> i32, i32
  %5:2 = tile.record %b[%i] : <i32> -> i32, i32
  // CHECK: tile.record %{{.*}}[%{{.*}}] first %{{.*}} : <i32> -> i32
  %first = tile.record %b[%i] first %i : <i32> -> i32
  // CHECK: %[[C:.*]] = arith.cmpi
  %c = arith.cmpi slt, %i, %4 : i32
  // CHECK: tile.record %{{.*}}[%{{.*}}] if %[[C]] : <i32> -> i32
  %some = tile.record %b[%i] if %c : <i32> -> i32
  // CHECK: tile.paged_slot %{{.*}}[%{{.*}}, %{{.*}}] columns %{{.*}} page 16 : <i32>
  %slot = tile.paged_slot %b[%i, %4] columns %some page 16 : <i32>
  // CHECK: tile.paged_slot start %{{.*}}[%{{.*}}, %{{.*}}] columns %{{.*}} page 256 : <i32>
  %page = tile.paged_slot start %b[%i, %4] columns %some page 256 : <i32>
  // CHECK: tile.packed_slot %{{.*}} head %{{.*}} group 4 of 32 : i64
  %packed = tile.packed_slot %i head %some group 4 of 32 : i64
  // CHECK: tile.ring_position %{{.*}} of 3
  %stage, %parity = tile.ring_position %i of 3
  // CHECK: tile.lookup_boxes %{{.*}} to %{{.*}} lines 16 if %[[C]] (%[[LINE:.*]]: i32) {
  // CHECK-NEXT: tile.yield %[[LINE]] : i32
  %boxes = tile.lookup_boxes %i to %some lines 16 if %c (%line: i32) {
    tile.yield %line : i32
  }
  // CHECK: tile.ahead %{{.*}}
  %ahead = tile.ahead %i (%at: i32) {
    tile.yield %at : i32
  } : i32
  // CHECK: tile.reciprocal %{{.*}}
  %6 = tile.reciprocal %x
  // CHECK: tile.pack %{{.*}}, %{{.*}} : bf16
  %7 = tile.pack %x, %6 : bf16
  // CHECK: tile.pack %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : f8E4M3FN
  %8 = tile.pack %x, %6, %x, %6 : f8E4M3FN
  // CHECK: tile.write %{{.*}} to %{{.*}}[%{{.*}}] : f32 -> <bf16>
  tile.write %6 to %o[%j] : f32 -> <bf16>
  return
}

// CHECK-LABEL: @shared
func.func @shared(%q: !tile.buffer<bf16>, %table: !tile.buffer<i32>, %begin: i32, %end: i32, %zero: i64) {
  // CHECK: %[[Q:.*]] = tile.alloc : !tile.shared<query 16, feature 64, bf16, swizzled>
  %0 = tile.alloc : !queries
  // CHECK: %[[R:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 32, feature 64, bf16, swizzled>>
  %1 = tile.alloc {per_warp} : !tile.ring<2, !keys>
  // CHECK: tile.alloc overlays %[[R]] : !tile.ring<{{.*}}> {offset = 2048 : i64} : !tile.scratch<512>
  %2 = tile.alloc overlays %1 : !tile.ring<2, !keys> {offset = 2048 : i64} : !tile.scratch<512>
  // CHECK: tile.ring_stage %[[R]][%{{.*}}] : <2, <key 32, feature 64, bf16, swizzled>> -> <key 32, feature 64, bf16, swizzled>
  %3 = tile.ring_stage %1[%begin] : <2, !keys> -> !keys
  // CHECK: tile.gather block %{{.*}} to %{{.*}} from %{{.*}} origins %{{.*}} strides [256] into %[[Q]] (%[[LINE:.*]]: i32) {
  // CHECK-NEXT: tile.yield %[[LINE]] : i32
  // CHECK-NEXT: } : !tile.buffer<bf16> -> !tile.shared<query 16, feature 64, bf16, swizzled>
  tile.gather block %begin to %end from %q origins %zero strides [256] into %0 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !queries
  // CHECK: %[[SLOTS:.*]] = tile.lookup block %{{.*}} to %{{.*}} lines 16 (%[[LINE:.*]]: i32) {
  // CHECK-NEXT: tile.yield %[[LINE]] : i32
  // CHECK-NEXT: }
  // CHECK: tile.gather block %{{.*}} to %{{.*}} at %[[SLOTS]] from %{{.*}} origins %{{.*}} strides [256] into %[[Q]] : !tile.buffer<bf16> -> !tile.shared<query 16, feature 64, bf16, swizzled>
  %slots = tile.lookup block %begin to %end lines 16 (%line: i32) {
    tile.yield %line : i32
  }
  tile.gather block %begin to %end at %slots from %q origins %zero strides [256] into %0 : !tile.buffer<bf16> -> !queries
  // CHECK: tile.commit
  tile.commit
  // CHECK: tile.wait 0
  tile.wait 0
  // CHECK: tile.sync warp
  tile.sync warp
  // CHECK: tile.load %[[Q]] at %{{.*}} : <query 16, feature 64, bf16, swizzled> -> <[query 16, feature 64], bf16, lhs>
  %4 = tile.load %0 at %begin : !queries -> !tile.fragment<[query 16, feature 64], bf16, lhs>
  return
}

// CHECK-LABEL: @fragments
func.func @fragments(%q: !queries, %k: !keys, %numbers: !tile.shared<query 64, feature 1, i32>, %acc: !scores, %i: i32, %x: f32,
                     %partial: i1) {
  // CHECK: tile.splat %{{.*}} : f32 -> <[query 16], f32, row>
  %0 = tile.splat %x : f32 -> !rows
  // CHECK: tile.undefined : <[query 16], f32, row>
  %none = tile.undefined : !rows
  // CHECK: tile.coordinates %{{.*}} : <[key 32], i32, col>
  %1 = tile.coordinates %i : <[key 32], i32, col>
  // CHECK: %[[S:.*]] = tile.mma %{{.*}} at %{{.*}}, %{{.*}}, %{{.*}} : !tile.shared<query 16, feature 64, bf16, swizzled>,
  // CHECK-SAME: <key 32, feature 64, bf16, swizzled>, <[query 16, key 32], f32, acc> -> <[query 16, key 32], f32, acc>
  %2 = tile.mma %q at %i, %k, %acc : !queries, !keys, !scores -> !scores
  // CHECK: tile.mask %[[S]] if %{{.*}} where %{{.*}}
  %3 = tile.mask %2 if %partial where %1 (%key: i32) {
    %seen = arith.cmpi slt, %key, %i : i32
    tile.yield %seen : i1
  } : !scores, !tile.fragment<[key 32], i32, col> -> !scores
  // CHECK: %{{.*}}:2 = tile.map %{{.*}} (%[[X:.*]]: f32) {
  // CHECK: tile.yield %[[X]], %{{.*}} : f32, i1
  // CHECK-NEXT: } : !tile.fragment<[query 16], f32, row> -> !tile.fragment<[query 16], f32, row>, !tile.fragment<[query 16], i1, row>
  %two:2 = tile.map %0 (%e: f32) {
    %large = arith.cmpf ogt, %e, %x : f32
    tile.yield %e, %large : f32, i1
  } : !rows -> !rows, !tile.fragment<[query 16], i1, row>
  // CHECK: tile.any %{{.*}} : <[query 16], i1, row>
  %any = tile.any %two#1 : !tile.fragment<[query 16], i1, row>
  // CHECK: %{{.*}} = tile.wait_mmas 1 of %[[S]] : !tile.fragment<[query 16, key 32], f32, acc> ->
  %done = tile.wait_mmas 1 of %2 : !scores -> !scores
  // CHECK-NEXT: tile.wait_mmas 0{{$}}
  tile.wait_mmas 0
  // CHECK-NEXT: %{{.*}} = tile.wgmma_wait 0(%{{.*}}) : f32
  %register = tile.wgmma_wait 0(%x) : f32
  // CHECK-NEXT: tile.wgmma_wait 0(){{$}}
  tile.wgmma_wait 0()
  // CHECK: tile.any_line %{{.*}} (%[[N:.*]]: i32) {
  // CHECK: } : <query 64, feature 1, i32>
  %line = tile.any_line %numbers (%n: i32) {
    %less = arith.cmpi slt, %n, %i : i32
    tile.yield %less : i1
  } : !tile.shared<query 64, feature 1, i32>
  // CHECK: tile.map %{{.*}}, %{{.*}}
  %4 = tile.map %3, %0 (%s: f32, %r: f32) {
    %d = arith.subf %s, %r : f32
    tile.yield %d : f32
  } : !scores, !rows -> !scores
  // CHECK: tile.reduce max %{{.*}} : <[query 16, key 32], f32, acc> -> <[query 16], f32, row>
  %5 = tile.reduce max %4 : !scores -> !rows
  // CHECK: tile.reduce add %{{.*}} : <[query 16, key 32], f32, acc> -> <[query 16], f32, row, partial>
  %6 = tile.reduce add %4 : !scores -> !tile.fragment<[query 16], f32, row, partial>
  // CHECK: tile.complete %{{.*}} : <[query 16], f32, row, partial> -> <[query 16], f32, row>
  %7 = tile.complete %6 : !tile.fragment<[query 16], f32, row, partial> -> !rows
  // CHECK: tile.cast %{{.*}} : <[query 16, key 32], f32, acc> -> <[query 16, key 32], bf16, lhs>
  %8 = tile.cast %4 : !scores -> !tile.fragment<[query 16, key 32], bf16, lhs>
  // CHECK: tile.convert %{{.*}} : <[query 16, key 32], bf16, lhs> -> <[key 32, query 16], bf16, lhs>
  %turned = tile.convert %8 : <[query 16, key 32], bf16, lhs> -> <[key 32, query 16], bf16, lhs>
  // CHECK: tile.reduce add %{{.*}} : <[query 16, key 32], f32, acc> -> <[key 32], f32, col, partial>
  %shares = tile.reduce add %4 : !scores -> !tile.fragment<[key 32], f32, col, partial>
  return
}

// CHECK-LABEL: @results
func.func @results(%max: !rows, %sum: !rows, %acc: !acc, %o: !tile.buffer<bf16>, %lse: !tile.buffer<f32>, %x: f32,
                   %i: i32) {
  %scratch = tile.alloc : !tile.scratch<8448>
  // CHECK: tile.merge_warps %{{.*}}, %{{.*}}, %{{.*}} unit %{{.*}} warps 2 warp %{{.*}} scratch %{{.*}} :
  %m, %s, %a = tile.merge_warps %max, %sum, %acc unit %x warps 2 warp %i scratch %scratch
    : !rows, !rows, !acc, !tile.scratch<8448> -> !rows, !rows, !tile.fragment<[query 16, feature 32], f32, acc>
  // CHECK: tile.reduce_warps max %{{.*}} warps 2 warp %{{.*}} scratch %{{.*}} : <[query 16], f32, row>, <8448> -> <[query 16], f32, row>
  %largest = tile.reduce_warps max %m warps 2 warp %i scratch %scratch : !rows, !tile.scratch<8448> -> !rows
  // CHECK: tile.scan %{{.*}}, %{{.*}} in %{{.*}} warps 2 : i32, i32 in <8448> -> i32, i32 total i32, i32
  %sums:4 = tile.scan %i, %i in %scratch warps 2 : i32, i32 in <8448> -> i32, i32 total i32, i32
  // CHECK: tile.load_vector %{{.*}}
  %v = tile.load_vector %lse (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : <f32> -> !rows
  // CHECK: tile.load_features %{{.*}} column %{{.*}} (
  // CHECK: } {columns = 48 : i64} : <bf16> -> <[query 16, feature 32], f32, acc>
  %g = tile.load_features %o column %i (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } {columns = 48} : <bf16> -> <[query 16, feature 32], f32, acc>
  // CHECK: tile.store %{{.*}} to %{{.*}} lines %{{.*}} column %{{.*}}
  // CHECK: } {columns = 48 : i64} : <[query 16, feature 32], f32, acc> -> <bf16>
  tile.store %a to %o lines %i column %i (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } {columns = 48 : i64} : <[query 16, feature 32], f32, acc> -> <bf16>
  // CHECK: tile.store %{{.*}} to %{{.*}} lines %{{.*}} stride 2 (
  tile.store %s to %lse lines %i stride 2 (%line: i32) {
    tile.yield %line : i32
  } : !rows -> <f32>
  return
}

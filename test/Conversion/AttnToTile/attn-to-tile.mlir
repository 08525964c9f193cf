// RUN: attn-opt %s --attn-choose-schedule --attn-to-tile --cse | FileCheck %s

#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
!query = tensor<?x28x80xf16>
!dense = !attn.kv<dense, heads = 4, dim = 80, key = f16, value = f16>
!packed = !attn.kv<packed, heads = 4, dim = 80, key = f16, value = f16>
!state = !attn.state<heads = 28, value_dim = 80>

func.func @regions(%q: !query {attn.name = "q"}, %context: !dense {attn.name = "context"},
                   %response: !packed {attn.name = "response"}, %s: tensor<28xf32> {attn.name = "sink_logits"})
    -> (!query, tensor<?x28xf32>) attributes {tile.schedules = [#rows16]} {
  %0 = attn.init %q sinks %s : !query, tensor<28xf32> -> !state
  %1 = attn.update %0, %q, %context see window(3) scale 1.0 : !query, !dense -> !state
  %2 = attn.update %1, %q, %response see sink(4) | recent(5) scale 1.0 : !query, !packed -> !state
  %o, %l = attn.finish %2 : !state -> !query, tensor<?x28xf32>
  return %o, %l : !query, tensor<?x28xf32>
}

// CHECK-LABEL: gpu.module @regions_kernels
// CHECK: func.func @regions_rows16(
// CHECK-SAME: %[[Q:arg0]]: !tile.buffer<f16>, %[[QPOS:arg1]]: !tile.buffer<i32>, %[[O:arg2]]: !tile.buffer<f16>,
// CHECK-SAME: %[[LSE:arg3]]: !tile.buffer<f32>, %[[TASKS:arg4]]: !tile.buffer<i32>,
// CHECK-SAME: %[[SEGMENTS:arg5]]: !tile.buffer<i32>, %[[PARTO:arg6]]: !tile.buffer<f32>, %[[PARTLSE:arg7]]: !tile.buffer<f32>,
// CHECK-SAME: %[[SCALE:arg8]]: f32, %[[STARTS:arg9]]: !tile.buffer<i32>,
// CHECK-SAME: %[[QROW:arg10]]: i32, %[[QHEAD:arg11]]: i32,
// CHECK-SAME: %[[K:arg12]]: !tile.buffer<f16>, %[[KHEAD:arg13]]: i32, %[[KTOKEN:arg14]]: i32,
// CHECK-SAME: %[[V:arg15]]: !tile.buffer<f16>, %[[VHEAD:arg16]]: i32, %[[VTOKEN:arg17]]: i32, %[[TOKENS:arg18]]: i32,
// CHECK-SAME: %[[START:arg19]]: !tile.buffer<i32>, %[[K1:arg20]]: !tile.buffer<f16>, %arg21: i32, %[[K1TOKEN:arg22]]: i32,
// CHECK-SAME: %[[V1:arg23]]: !tile.buffer<f16>, %arg24: i32, %[[V1TOKEN:arg25]]: i32,
// CHECK-SAME: %[[END0:arg26]]: i32, %[[END1:arg27]]: i32, %[[END2:arg28]]: i32, %[[SINKS:arg29]]: !tile.buffer<f32>, %arg30: i32, %arg31: i32)
// CHECK-SAME: tile.blocks_per_sm = 2 : i32
// CHECK-SAME: tile.launch = {grid = "plan.starts", role = "attend"}
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "q">, #tile.parameter<buffer, "q_pos">,
// CHECK-SAME: #tile.parameter<buffer, "o">, #tile.parameter<buffer, "lse">,
// CHECK-SAME: #tile.parameter<buffer, "plan.tasks">, #tile.parameter<buffer, "plan.segments">,
// CHECK-SAME: #tile.parameter<buffer, "partial.o">, #tile.parameter<buffer, "partial.lse">, #tile.parameter<scale>,
// CHECK-SAME: #tile.parameter<buffer, "plan.starts">, #tile.parameter<dim, "q.stride0">, #tile.parameter<dim, "q.stride1">,
// CHECK-SAME: #tile.parameter<buffer, "context.k">, #tile.parameter<dim, "context.k.stride2">, #tile.parameter<dim, "context.k.stride1">,
// CHECK-SAME: #tile.parameter<buffer, "context.v">, #tile.parameter<dim, "context.v.stride2">, #tile.parameter<dim, "context.v.stride1">,
// CHECK-SAME: #tile.parameter<dim, "context.outer_slots">,
// CHECK-SAME: #tile.parameter<buffer, "response.start">, #tile.parameter<buffer, "response.k">, #tile.parameter<dim, "response.k.stride1">,
// CHECK-SAME: #tile.parameter<dim, "response.k.stride0">, #tile.parameter<buffer, "response.v">,
// CHECK-SAME: #tile.parameter<end>, #tile.parameter<end index 1>, #tile.parameter<end index 2>, #tile.parameter<buffer, "sink_logits">,
// CHECK-SAME: #tile.parameter<dim, "o.stride0">, #tile.parameter<dim, "o.stride1">]
// CHECK-SAME: tile.threads = 128 : i32

// Every warp has a slice of the keys: 16 of 64. The exchange between warps takes the memory of the rings.
// CHECK: %[[LOG2E:.*]] = arith.constant 1.44269502 : f32
// CHECK: %[[TOLOG2:.*]] = arith.mulf %[[SCALE]], %[[LOG2E]]
// CHECK: %[[WARP:.*]] = tile.warp_id
// CHECK: tile.alloc : !tile.shared<query 16, feature 80, f16>
// CHECK: %[[RING:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 80, f16>>
// CHECK: tile.alloc overlays %[[RING]] : {{.*}} : !tile.scratch<20992>

// A record of the block has its first task, that task's first segment and the range of its tasks; later records are
// read ahead.
// CHECK: %[[BLOCK:.*]] = tile.block_id
// CHECK: %[[FT:.*]]:18 = tile.record %[[STARTS]][%[[BLOCK]]]
// CHECK: scf.for %[[TASK:.*]] = %[[FT]]#16 to %[[FT]]#17
// CHECK-SAME: iter_args(%[[T0:[^ ]*]] = %[[FT]]#0, %[[T1:[^ ]*]] = %[[FT]]#1, %[[T2:[^ ]*]] = %[[FT]]#2, %[[T3:[^ ]*]] = %[[FT]]#3, %[[T4:[^ ]*]] = %[[FT]]#4, %[[T5:[^ ]*]] = %[[FT]]#5, %[[T6:[^ ]*]] = %[[FT]]#6, %[[T7:[^ ]*]] = %[[FT]]#7,
// CHECK-SAME: %[[A0:[^ ]*]] = %[[FT]]#8, %[[A1:[^ ]*]] = %[[FT]]#9, %[[A2:[^ ]*]] = %[[FT]]#10, %[[A3:[^ ]*]] = %[[FT]]#11, %[[A4:[^ ]*]] = %[[FT]]#12, %[[A5:[^ ]*]] = %[[FT]]#13, %[[A6:[^ ]*]] = %[[FT]]#14, %[[A7:[^ ]*]] = %[[FT]]#15)
// The origin of the head's keys is the same for all tiles of a task.
// CHECK: %[[PLACE:.*]] = arith.extsi %[[T2]]
// CHECK: %[[STRIDE:.*]] = arith.extsi %[[KHEAD]]
// CHECK: %[[ORIGIN:.*]] = arith.muli %[[PLACE]], %[[STRIDE]]
// The sink counts in the task that is flagged.
// CHECK: %[[BIT:.*]] = arith.andi %[[T6]], %{{.*}}
// CHECK: %[[COUNTS:.*]] = arith.cmpi ne, %[[BIT]],

// Packed row p is query row p / 7 and head kv_head * 7 + p % 7.
// CHECK: %[[ROWEND:.*]] = arith.addi %[[T0]], %[[T1]]
// Its line's offset is counted in chunks of 16 bytes.
// CHECK: tile.gather block %[[T0]] to %[[ROWEND]] from %[[Q]] {{.*}} pitches %c16_i32
// CHECK-SAME: (%[[P:.*]]: i32) {
// CHECK-NEXT: %[[SLOT:.*]] = tile.packed_slot %[[P]] head %[[T2]] group 7 pitches %[[QROW]], %[[QHEAD]] bytes 16 : i32
// CHECK-NEXT: tile.yield %[[SLOT]]

// Positions of rows past the task's last are those of the last.
// CHECK: %[[POSITIONS:.*]] = tile.load_vector %[[QPOS]]
// CHECK-SAME: (%[[LINE:.*]]: i32) {
// CHECK-NEXT: %[[R:.*]] = arith.addi %[[T0]], %[[LINE]]
// CHECK: %[[LASTROW:.*]] = arith.subi %[[ROWEND]],
// CHECK: arith.minsi %[[R]], %[[LASTROW]]

// The task's segments; each selects one region, the other has no tiles.
// CHECK: scf.for {{.*}} = %[[T3]] to %[[T4]] {{.*}} iter_args(
// CHECK-SAME: %[[S0:[^ ]*]] = %[[A0]], %[[S1:[^ ]*]] = %[[A1]], %[[S2:[^ ]*]] = %[[A2]], %[[S3:[^ ]*]] = %[[A3]], %[[S4:[^ ]*]] = %[[A4]], %[[S5:[^ ]*]] = %[[A5]], %[[S6:[^ ]*]] = %[[A6]], %[[S7:[^ ]*]] = %[[A7]])
// CHECK: %[[MINE:.*]] = arith.cmpi eq, %[[S0]], %c0_i32
// CHECK: %[[END:.*]] = arith.select %[[MINE]], %[[S3]], %[[S2]]
// CHECK: %[[LENGTH:.*]] = arith.subi %[[END]], %[[S2]]
// CHECK: %[[UP:.*]] = arith.addi %[[LENGTH]], %c63_i32
// CHECK: %[[TILES:.*]] = arith.divui %[[UP]], %c64_i32
// CHECK: %[[FIRSTLOOP:.*]]:3 = scf.for %[[I:.*]] = %{{.*}} to %[[TILES]]
// CHECK: %[[TILE0:.*]] = arith.muli %[[I]], %c64_i32
// CHECK: %[[TILE:.*]] = arith.addi %[[S2]], %[[TILE0]]
// CHECK: %[[SLICE0:.*]] = arith.muli %[[WARP]], %c16_i32
// CHECK: %[[KEY:.*]] = arith.addi %[[TILE]], %[[SLICE0]]

// Dense: token t of instance i is slot i * (slots from one instance to the next) + t.
// CHECK: tile.gather warp %[[KEY]] to %[[S3]] from %[[K]], %[[V]] origins %[[ORIGIN]], %{{.*}} pitches %[[KTOKEN]], %[[VTOKEN]]
// CHECK-SAME: (%[[TOKEN:.*]]: i32) {
// CHECK-NEXT: %[[BEFORE:.*]] = arith.muli %[[S1]], %[[TOKENS]]
// CHECK-NEXT: %[[DENSE:.*]] = arith.addi %[[BEFORE]], %[[TOKEN]]
// CHECK-NEXT: tile.yield %[[DENSE]]

// A tile inside [full_begin, full_end) is not masked.
// CHECK: %[[AFTER:.*]] = arith.addi %[[KEY]], %c16_i32
// CHECK: %[[B:.*]] = arith.cmpi slt, %[[KEY]], %[[S4]]
// CHECK: %[[E:.*]] = arith.cmpi slt, %[[S5]], %[[AFTER]]
// CHECK: %[[PARTIAL:.*]] = arith.ori %[[B]], %[[E]]
// Ends are measured from the lane's first column, and columns are constants: one compare per element and end. The
// test that a token exists needs no compare of its own.
// CHECK: %[[LANEFIRST:.*]], %[[OFFSETS:.*]] = tile.lane_coordinates
// CHECK: %[[TOKEN0:.*]] = arith.addi %[[KEY]], %[[LANEFIRST]]
// CHECK: %[[MASKORIGIN:.*]] = arith.addi %[[S6]], %[[TOKEN0]]
// CHECK: %[[EXISTS:.*]] = arith.subi %[[S3]], %[[TOKEN0]]
// CHECK: %[[LOW:.*]] = tile.map %[[POSITIONS]] (%[[POSITION:.*]]: i32) {
// CHECK-NEXT: %[[FROM0:.*]] = arith.subi %[[POSITION]], %[[MASKORIGIN]]
// CHECK-NEXT: arith.addi %[[FROM0]], %c1_i32
// CHECK: %[[SIZE:.*]] = arith.minsi %[[END0]], %c1073741824_i32
// CHECK: arith.subi %{{.*}}, %[[SIZE]]
// CHECK: %[[HIGH:.*]] = tile.map %[[POSITIONS]] (%[[POSITION:.*]]: i32) {
// CHECK-NEXT: %[[FROM0:.*]] = arith.subi %[[POSITION]], %[[MASKORIGIN]]
// CHECK-NEXT: %[[NEXT:.*]] = arith.addi %[[FROM0]], %c1_i32
// CHECK: arith.minsi %[[NEXT]], %[[EXISTS]]
// CHECK: tile.mask %{{.*}} if %[[PARTIAL]] where %[[OFFSETS]], %[[LOW]], %[[HIGH]]
// CHECK-SAME: (%[[COL:.*]]: i32, %[[L:.*]]: i32, %[[H:.*]]: i32) {
// CHECK-NEXT: %[[BEFOREHIGH:.*]] = arith.cmpi slt, %[[COL]], %[[H]]
// CHECK-NEXT: %[[AFTERLOW:.*]] = arith.cmpi sge, %[[COL]], %[[L]]
// CHECK-NEXT: %[[WINDOW:.*]] = arith.andi %[[AFTERLOW]], %[[BEFOREHIGH]]
// CHECK-NEXT: tile.yield %[[WINDOW]]

// If the maximum stays, the decay is exp2(0): it subtracts before it scales. The maximum moves only if it would be
// more than 2^8 too small.
// CHECK: %[[TILEMAX:.*]] = tile.reduce max
// CHECK: %[[UNIT:.*]]:4 = tile.map %[[OLD:.*]], %[[TILEMAX]] (%[[A:.*]]: f32, %[[B:.*]]: f32) {
// CHECK: %[[AHEAD:.*]] = arith.subf %[[B]], %[[A]]
// CHECK: %[[AHEAD2:.*]] = arith.mulf %[[AHEAD]], %[[TOLOG2]]
// CHECK: %[[GROWS:.*]] = arith.cmpf ogt, %[[AHEAD2]],
// CHECK: %[[M:.*]] = arith.select %[[GROWS]], %[[B]], %[[A]]
// CHECK: %[[NOTHING:.*]] = arith.cmpf oeq, %[[M]], %[[MINF:.*]]
// CHECK: %[[CENTER:.*]] = arith.select %[[NOTHING]], %{{.*}}, %[[M]]
// CHECK: %[[D:.*]] = arith.subf %[[A]], %[[CENTER]]
// CHECK-NEXT: %[[D2:.*]] = arith.mulf %[[D]], %[[TOLOG2]]
// CHECK-NEXT: %[[DECAY:.*]] = math.exp2 %[[D2]]
// CHECK-NEXT: tile.yield %[[M]], %[[GROWS]], %{{.*}}, %[[DECAY]]
// CHECK: %[[MOVED:.*]] = tile.any %[[UNIT]]#1
// CHECK: %[[ACC:.*]] = scf.if %[[MOVED]]
// CHECK: tile.mma %{{.*}}, %{{.*}}, %[[ACC]]

// Packed: token t of instance i is line start[i] + t. Ends are numbered on from the first region's.
// CHECK: arith.cmpi eq, %[[S0]], %c1_i32
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[FIRSTLOOP]]#0, %{{.*}} = %[[FIRSTLOOP]]#1, %{{.*}} = %[[FIRSTLOOP]]#2)
// CHECK: %[[SLOTS:.*]] = tile.lookup warp {{.*}} lines 16 (%[[TOKEN:.*]]: i32) {
// CHECK-NEXT: %[[INSTANCE:.*]] = arith.extsi %[[S1]]
// CHECK-NEXT: %[[AT:.*]] = tile.read %[[START]][%[[INSTANCE]]]
// CHECK-NEXT: %[[LINE:.*]] = arith.addi %[[AT]], %[[TOKEN]]
// CHECK-NEXT: tile.yield %[[LINE]]
// CHECK: tile.gather warp {{.*}} at %[[SLOTS]] from %[[K1]], %[[V1]] {{.*}} pitches %[[K1TOKEN]], %[[V1TOKEN]]
// CHECK: %[[EXISTS:.*]] = arith.subi %[[S3]], %{{.*}}
// CHECK: %[[SINKSIZE:.*]] = arith.subi %[[END1]], %{{.*}}
// CHECK: %[[SINKEND:.*]] = arith.minsi %[[SINKSIZE]], %[[EXISTS]]
// CHECK: arith.minsi %[[END2]], %c1073741824_i32
// CHECK: tile.mask
// CHECK-SAME: (%[[COL:.*]]: i32, %[[L:.*]]: i32, %[[H:.*]]: i32) {
// CHECK-NEXT: %[[SINK:.*]] = arith.cmpi slt, %[[COL]], %[[SINKEND]]
// CHECK-NEXT: %[[BEFOREHIGH:.*]] = arith.cmpi slt, %[[COL]], %[[H]]
// CHECK-NEXT: %[[AFTERLOW:.*]] = arith.cmpi sge, %[[COL]], %[[L]]
// CHECK-NEXT: %[[RECENT:.*]] = arith.andi %[[AFTERLOW]], %[[BEFOREHIGH]]
// CHECK-NEXT: arith.ori %[[SINK]], %[[RECENT]]

// The warps' states are merged. Each warp writes 32 of the 80 columns: those past the end do not exist.
// CHECK: tile.complete
// CHECK-NEXT: tile.sync block
// CHECK: tile.merge_warps {{.*}} unit %[[TOLOG2]] warps 4 warp %[[WARP]] {{.*}} -> <[query 16], f32>, <[query 16], f32>, <[query 16, feature 32], f32>
// The sink joins the sum.
// CHECK: %[[LOGITS:.*]] = tile.load_vector %[[SINKS]]
// CHECK: %[[INLOG2:.*]] = tile.map %[[LOGITS]]
// CHECK: %[[OFSINK:.*]] = arith.mulf %{{.*}}, %[[LOG2E]]
// CHECK: arith.select %[[COUNTS]], %[[OFSINK]],
// CHECK: tile.map %merged_max, %merged_sum, %[[INLOG2]]
// CHECK: arith.maxnumf
// CHECK: math.exp2
// CHECK: math.exp2
// CHECK: tile.reciprocal
// CHECK: %[[COLUMN:.*]] = arith.muli %[[WARP]], %c32_i32
// CHECK: %[[WARP0:.*]] = arith.cmpi eq, %[[WARP]],
// CHECK: %[[LSELINES:.*]] = arith.select %[[WARP0]], %[[T1]],
// CHECK: %[[PART:.*]] = arith.cmpi sge, %[[T5]],
// CHECK: scf.if %[[PART]] {
// CHECK: tile.store %{{.*}} to %[[PARTO]] lines %[[T1]] column %[[COLUMN]] stride 80
// CHECK: arith.addi %[[T5]],
// CHECK: } {columns = 80 : i64}
// CHECK: tile.store %{{.*}} to %[[PARTLSE]] lines %[[LSELINES]]
// CHECK: } else {
// CHECK: tile.store %{{.*}} to %[[O]] lines %[[T1]] column %[[COLUMN]] (
// CHECK: tile.packed_slot %{{.*}} head %[[T2]] group 7 pitches %{{.*}}, %{{.*}} bytes 2 : i64
// CHECK: tile.store %{{.*}} to %[[LSE]] lines %[[LSELINES]]
// CHECK: tile.packed_slot %{{.*}} head %[[T2]] group 7 of 28 : i64

// The merge kernel: 80 columns are four for each of twenty lanes.
// CHECK: func.func @regions_merge(
// CHECK-SAME: tile.launch = {grid = "plan.merge_rows", if_filled, overlaps, pieces = 1 : i32, role = "merge", rows_per_warp = 1 : i32}
// CHECK-SAME: tile.parameters = [#tile.parameter<buffer, "o">, #tile.parameter<buffer, "lse">,
// CHECK-SAME: #tile.parameter<buffer, "plan.merge_start">, #tile.parameter<buffer, "plan.merge_rows">,
// CHECK-SAME: #tile.parameter<buffer, "plan.merge_partials">, #tile.parameter<buffer, "partial.o">,
// CHECK-SAME: #tile.parameter<buffer, "partial.lse">, #tile.parameter<dim, "o.stride0">, #tile.parameter<dim, "o.stride1">], tile.threads = 128 : i32
// The number of rows stands before the starts of their lists.
// CHECK: tile.read %{{.*}}[%c0_i64]
// The plan of the first row is read while the attention still runs: the range of its parts, the output, the first
// parts.
// CHECK: %[[PLANNED:.*]]:4 = scf.if
// CHECK: tile.read_range
// CHECK: tile.read
// CHECK: tile.read
// CHECK: tile.wait_previous
// CHECK-NOT: tile.read
// CHECK: scf.for {{.*}} iter_args(%[[BEGIN:[^ ]*]] = %[[PLANNED]]#0, %[[END:[^ ]*]] = %[[PLANNED]]#1
// One part per lane: its share of the sum. Then the outputs of the parts, sixteen in flight.
// CHECK: scf.for {{.*}} = %[[BEGIN]] to %[[END]] step %c32_i32
// CHECK: tile.read written
// CHECK: tile.reduce_lanes max
// CHECK: arith.maxnumf
// CHECK: math.exp2
// CHECK: tile.reduce_lanes add
// CHECK: scf.for {{.*}} step %c1_i32
// CHECK: tile.from_lane
// CHECK: arith.minsi %{{.*}}, %c76_i32
// CHECK: tile.read_adjacent
// CHECK: tile.unroll = 16
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %{{.*}}, %c80_i32
// CHECK-NEXT: scf.if %[[INSIDE]] {
// CHECK: tile.write_adjacent %{{.*}} to %arg0
// CHECK: scf.if
// CHECK: tile.write %{{.*}} to %arg1

// A score region, no LSE, pages, and a tile shared by the block.
!query8 = tensor<?x8x64xbf16>
!paged = !attn.kv<paged<16>, heads = 8, dim = 64, key = bf16, value = bf16>
!state8 = !attn.state<heads = 8, value_dim = 64>

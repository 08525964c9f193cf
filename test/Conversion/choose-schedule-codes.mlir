// RUN: attn-opt %s --attn-choose-schedule="target=sm_90a schedule=mma" | FileCheck %s
// RUN: attn-opt %s --attn-choose-schedule="target=sm_80" | FileCheck %s --check-prefix=SM80
// RUN: attn-opt %s --attn-choose-schedule="target=sm_89" | FileCheck %s --check-prefix=SM89
// RUN: attn-opt %s --attn-choose-schedule="target=sm_120a" | FileCheck %s --check-prefix=SM89

// Tiles of quantized values take a byte per element, and lines of 32 bytes and multiples of that. Queries keep their
// type: 16 * 96 * 2 bytes, and 4 warps * 2 stages * 32 keys * (96 + 96 * 2) bytes. A warp takes 32 keys, twice those
// of bf16, and two stages have 68 KiB in flight in two blocks.
// CHECK-LABEL: @keys
// CHECK-SAME: #tile.schedule<mma, rows = 16, keys = 128, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true, shared_bytes = 76800>
func.func @keys(%q: tensor<?x8x80xbf16> {attn.name = "q"},
                %kv: !attn.kv<dense, heads = 8, dim = 80, value_dim = 96, key = !attn.quantized<f8E4M3FN, per = head>, value = bf16> {attn.name = "kv"}) -> tensor<?x8x96xbf16> {
  %0 = attn.init %q : tensor<?x8x80xbf16> -> !attn.state<heads = 8, value_dim = 96>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x80xbf16>, !attn.kv<dense, heads = 8, dim = 80, value_dim = 96, key = !attn.quantized<f8E4M3FN, per = head>, value = bf16> -> !attn.state<heads = 8, value_dim = 96>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 96> -> tensor<?x8x96xbf16>
  return %o : tensor<?x8x96xbf16>
}

// Quantized values on their way to an MMA leave no registers for 32 keys, which the same heads of bf16 get.
// CHECK-LABEL: @registers
// CHECK-SAME: #tile.schedule<mma, rows = 128, keys = 16, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false,
func.func @registers(%q: tensor<?x8x256xbf16> {attn.name = "q"},
                     %kv: !attn.kv<dense, heads = 8, dim = 256, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>> {attn.name = "kv"}) -> tensor<?x8x256xbf16> {
  %0 = attn.init %q : tensor<?x8x256xbf16> -> !attn.state<heads = 8, value_dim = 256>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x256xbf16>, !attn.kv<dense, heads = 8, dim = 256, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>> -> !attn.state<heads = 8, value_dim = 256>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 256> -> tensor<?x8x256xbf16>
  return %o : tensor<?x8x256xbf16>
}

// Eight rows hold a group of heads: tiles have that many rows if keys and values are quantized in long runs. Four
// bits take three blocks, whose instructions overlap, and have 51 KiB in flight; two blocks of sixteen rows need
// three stages.
// CHECK-LABEL: @few
// CHECK-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 3, split_keys = true, query_in_registers = true, shared_bytes = 36864>, #tile.schedule<mma, rows = 16, keys = 128, warps = 4, stages = 3, blocks = 2,
func.func @few(%q: tensor<?x8x128xbf16> {attn.name = "q"},
               %kv: !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i4, per = 128>> {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i4, per = 128>> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Four and two bits take three blocks, too.
// CHECK-LABEL: @fewest
// CHECK-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 3,
// SM80-LABEL: @fewest
// SM80-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 3,
!fewest = !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
func.func @fewest(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !fewest {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !fewest -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}
// CHECK-LABEL: @masked
// CHECK-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 3,
func.func @masked(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %kv: !fewest {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see window(100) scale 0.125 : tensor<?x8x128xbf16>, !fewest -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Two quantized regions, whose rings share memory where they have the same number of bytes: values of the first with
// keys of the second, and all metadata. Three blocks leave enough registers, except before Hopper and where masks
// have sizes.
// CHECK-LABEL: @two
// CHECK-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 3, split_keys = true, query_in_registers = true, shared_bytes = 61440>,
// SM80-LABEL: @two
// SM80-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true, shared_bytes = 61440>,
!high = !attn.kv<paged<32>, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!low = !attn.kv<paged<64>, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
func.func @two(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %high: !high {attn.name = "high"}, %low: !low {attn.name = "low"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %high see all scale 0.125 : tensor<?x8x128xbf16>, !high -> !attn.state<heads = 8, value_dim = 128>
  %2 = attn.update %1, %q, %low see all scale 0.125 : tensor<?x8x128xbf16>, !low -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %2 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}
// CHECK-LABEL: @two_masked
// CHECK-SAME: [#tile.schedule<mma, rows = 8, keys = 128, warps = 4, stages = 2, blocks = 2,
func.func @two_masked(%q: tensor<?x8x128xbf16> {attn.name = "q"}, %high: !high {attn.name = "high"}, %low: !low {attn.name = "low"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %high see window(100) scale 0.125 : tensor<?x8x128xbf16>, !high -> !attn.state<heads = 8, value_dim = 128>
  %2 = attn.update %1, %q, %low see all scale 0.125 : tensor<?x8x128xbf16>, !low -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %2 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Groups of 32 features cut runs, and sixteen heads of a group do not fit eight rows.
// CHECK-LABEL: @grouped
// CHECK-SAME: [#tile.schedule<mma, rows = 16,
func.func @grouped(%q: tensor<?x8x128xbf16> {attn.name = "q"},
                   %kv: !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 32>, value = !attn.quantized<i4, per = 128>> {attn.name = "kv"}) -> tensor<?x8x128xbf16> {
  %0 = attn.init %q : tensor<?x8x128xbf16> -> !attn.state<heads = 8, value_dim = 128>
  %1 = attn.update %0, %q, %kv see causal scale 0.125 : tensor<?x8x128xbf16>, !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 32>, value = !attn.quantized<i4, per = 128>> -> !attn.state<heads = 8, value_dim = 128>
  %o = attn.finish %1 : !attn.state<heads = 8, value_dim = 128> -> tensor<?x8x128xbf16>
  return %o : tensor<?x8x128xbf16>
}

// Two formats of quantized values: queries leave the registers to both conversions, except in tiles of eight rows.
// CHECK-LABEL: @mixed
// CHECK-SAME: [#tile.schedule<mma, rows = 8, {{[^>]*}}query_in_registers = true, {{[^>]*}}>, #tile.schedule<mma, rows = 16, {{[^>]*}}query_in_registers = false, {{[^>]*}}>, #tile.schedule<mma, rows = 128, {{[^>]*}}query_in_registers = false,
!query = tensor<?x8x128xbf16>
!many = !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!fewer = !attn.kv<dense, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
!state = !attn.state<heads = 8, value_dim = 128>
func.func @mixed(%q: !query {attn.name = "q"}, %many: !many {attn.name = "many"}, %fewer: !fewer {attn.name = "fewer"}) -> !query {
  %0 = attn.init %q : !query -> !state
  %1 = attn.update %0, %q, %many see all scale 0.125 : !query, !many -> !state
  %2 = attn.update %1, %q, %fewer see all scale 0.125 : !query, !fewer -> !state
  %o = attn.finish %2 : !state -> !query
  return %o : !query
}

// Long heads in 16 bits beside quantized values, in 99 KB: warps with as few keys as an MMA reads at a time and, for
// heads of 256, a single stage.
// SM89-LABEL: @beside
// SM89-SAME: [#tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = 1, blocks = 1,
!long = tensor<?x8x256xbf16>
!plain = !attn.kv<dense, heads = 2, dim = 256, key = bf16, value = bf16>
!coded = !attn.kv<dense, heads = 2, dim = 256, key = !attn.quantized<i8, per = 256>, value = !attn.quantized<i8, per = 256>>
!longs = !attn.state<heads = 8, value_dim = 256>
func.func @beside(%q: !long {attn.name = "q"}, %plain: !plain {attn.name = "plain"}, %coded: !coded {attn.name = "coded"}) -> !long {
  %0 = attn.init %q : !long -> !longs
  %1 = attn.update %0, %q, %plain see all scale 0.125 : !long, !plain -> !longs
  %2 = attn.update %1, %q, %coded see all scale 0.125 : !long, !coded -> !longs
  %o = attn.finish %2 : !longs -> !long
  return %o : !long
}
// SM89-LABEL: @wide
// SM89-SAME: [#tile.schedule<mma, rows = 16, keys = 32, warps = 2, stages = 2, blocks = 1,
!wide = tensor<?x8x192xbf16>
!plains = !attn.kv<dense, heads = 2, dim = 128, value_dim = 192, key = bf16, value = bf16>
!codes = !attn.kv<dense, heads = 2, dim = 128, value_dim = 192, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>
!wides = !attn.state<heads = 8, value_dim = 192>
func.func @wide(%q: !query {attn.name = "q"}, %plain: !plains {attn.name = "plain"}, %coded: !codes {attn.name = "coded"}) -> !wide {
  %0 = attn.init %q : !query -> !wides
  %1 = attn.update %0, %q, %plain see all scale 0.125 : !query, !plains -> !wides
  %2 = attn.update %1, %q, %coded see all scale 0.125 : !query, !codes -> !wides
  %o = attn.finish %2 : !wides -> !wide
  return %o : !wide
}

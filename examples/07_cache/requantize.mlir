// Lesson 7, and fewer bits: tokens that matter less need not be stored as well.
//
// A cache may store values of 8 bits and less instead of 16-bit numbers. An append then quantizes what it writes, and a
// gather gives numbers again. `attn.requantize` takes slots of one such cache to slots of another that has fewer bits for
// them. It starts from the stored values: grids of 255, 15 and 3 steps nest, so nothing is lost by having been careful first.
//
//   attn-run requantize.mlir --dim layers=4 --dim rows=48 --check
!high = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>
!low = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
!slots = tensor<?xi32>

func.func @requantize(%kv: !high {attn.name = "kv"}, %low: !low {attn.name = "low"}, %from: !slots {attn.name = "from"},
                      %to: !slots {attn.name = "to"}) {
  attn.requantize %kv at %from to %low at %to : !high, !slots, !low, !slots
  return
}

// Lesson 9: keys and values in fewer bits.
//
// Decoding is as fast as its cache is read. Here keys have 8 bits and values 4: a token of one head takes 200
// bytes instead of 512. A number is `code * scale + zero`; scale and zero, two f16, belong to a group of neighbouring
// features of one token and head, `per = 128` of them here, and lie in tensors of their own (`kv.k_meta`, `kv.v_meta`),
// what one head needs of a page side by side.
//
// Nothing is written to memory in 16 bits: quantized values become numbers in registers. Keys need not even that, for
// q . (scale * c + zero) = scale * (q . c) + zero * sum(q): tensor cores multiply quantized keys, and scale and zero come after.
//
// Any mask, score, head class or tree goes with any format, and operands of one attention may have different ones.
//
//   attn-opt quantized.mlir --target=sm_90a --emit=ptx -o quantized.ptx
//   attn-run quantized.mlir --dim batch=8 --dim kv_len=100..2000 --check
!query = tensor<?x32x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 128>>

func.func @quantized(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                     %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal) : !query, !cache -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}

// Lesson 2: prefill. The queries of a prompt attend to its own keys and values, causally.
//
// Keys and values are packed: sequence i holds the tokens [start[i], start[i + 1]), without padding. Nothing here says
// that it is prefill: the same operation becomes the kernel for many rows when there are many rows. The scale is left
// out and defaults to 1/sqrt(128). hopper.md, beside this file, walks the kernel that Hopper gets.
//
//   attn-run prefill.mlir --dim batch=2 --dim q_len=300 --dim kv_len=300 --check
!query = tensor<?x32x128xbf16>
!tokens = !attn.kv<packed, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @prefill(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                   %kv: !tokens {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> (!query, tensor<?x32xf32>) {
  %o, %lse = attn.attend %q over (%kv see causal) : !query, !tokens -> !query, tensor<?x32xf32>
  return %o, %lse : !query, tensor<?x32xf32>
}

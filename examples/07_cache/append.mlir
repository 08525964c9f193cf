// Lesson 7: the cache itself. A step's new keys and values are written where block tables will find them.
//
// Attention reads a cache through block tables; what changes it speaks of slots: slot s is place s % 16 of page s / 16, in
// every layer. `attn.append` writes row r of the new keys and values to slot slots[r]. It is an operation like the others:
// the same compiler makes a kernel of it, the same programs run and check it, and since rows are only copied, every bit
// has to be right, those that must not change included. Any dtype is copied so.
//
// A row whose slot is negative is skipped, and how many rows there are lies in device memory. So one recorded launch (a
// CUDA graph) serves every step: only the list is rewritten.
//
//   attn-opt append.mlir --target=sm_90a --emit=ptx -o append.ptx
//   attn-run append.mlir --dim layers=4 --dim rows=100 --check
!rows = tensor<?x?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>

func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                  %slots: tensor<?xi32> {attn.name = "slots"}) {
  attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, tensor<?xi32>
  return
}

//===- AttnCacheOps.td - Rows into, within and out of a cache -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNCACHEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNCACHEOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Attention sees a cache through block tables. Operations on a cache name *slots*: indices of tokens in
// memory. The slot of a token is `page * page_size + offset` in a paged store, and the token's row in a
// packed one. A slot holds the keys and values of one token in all KV heads. Layers follow each other in
// memory, `[layers][pages]...`, and slot s has the same index in each.
//
// All operations copy rows from one list of slots to another, in all layers at once. A launch can be recorded
// once and replayed: the number of rows and their slots are read from device memory, and a row whose slot is
// negative is skipped.
//
// Rows outside of a cache are f16 or bf16. Writing to a quantized cache (`!attn.quantized`) quantizes them, and
// reading dequantizes, as `attn_rt/tensor/Format.h` defines. Slots move unchanged, metadata included. Given
// scales (per tensor or head) are read from `[layers, 1]` or `[layers, heads]`; other scales are computed for
// each row. A quantized row is a whole number of bytes, and no two rows share a byte. Some numbers cannot be
// quantized: a NaN is stored as 0, an infinity as the largest number of its sign. Their count is added to
// `status`, an `i32[1]`.

def Attn_RowsTensor
    : Attn_Described<AnyRankedTensor, "keys or values by row, `[layers, rows, kv_heads, dim]`, f16 or bf16, layers and rows dynamic">;
def Attn_SlotsTensor
    : Attn_Described<AnyRankedTensor, "a slot for each row, `tensor<?xi32>`; negative: the row is skipped">;
def Attn_StatusTensor
    : Attn_Described<AnyRankedTensor, "i32[1]: the count of numbers that were NaN or infinite is added to it">;
def Attn_CacheOperand
    : Attn_Described<Attn_KVType, "the cache, paged or packed: `kv.k_pages` and `kv.v_pages`, `[layers, pages, page, kv_heads, dim]` (quantized, with metadata by line: `[layers, pages, kv_heads, page, dim]`), or `kv.k` and `kv.v`, `[layers, tokens, kv_heads, dim]`">;

def Attn_PositionsTensor
    : Attn_Described<AnyRankedTensor, "the position of each row, `tensor<?xi32>`">;
def Attn_AnglesTensor
    : Attn_Described<AnyRankedTensor, "cosines or sines, `[positions, rotary_dim / 2]`, f32 or the rows' type">;
def Attn_WeightsTensor
    : Attn_Described<AnyRankedTensor, "the weights of a norm in each layer, `[layers, dim]` (of latents `[layers, value_dim]`), f32 or the rows' type">;

class Attn_CacheOp<string mnemonic, list<MemoryEffect> effects, list<Trait> traits = []>
    : Op<Attn_Dialect, mnemonic, traits # [MemoryEffects<effects>]> {
  let hasVerifier = 1;
}

def Attn_AppendRowsOp : Attn_CacheOp<"append", [MemRead, MemWrite], [AttrSizedOperandSegments]> {
  let summary = "writes new rows of keys and values to slots of a cache";
  let description = [{
    Copies row `r` of `k` and `v` to slot `slots[r]`, in every layer: bit by bit, whatever the bits mean, or
    quantized. All other slots are unchanged. No two rows may go to one slot. A latent cache, whose values are
    a part of its keys, takes no `v`.

    ```mlir
    attn.append %k, %v to %kv at %slots
        : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, !cache, tensor<?xi32>

    attn.append %k to %kv at %slots : tensor<?x?x1x576xbf16>, !latents, tensor<?xi32>
    ```

    Two clauses prepare keys, and the queries of the same tokens, on their way. `norm` divides each head by the
    root of its mean square and multiplies by weights: `x * w / sqrt(mean(x^2) + epsilon)`. `rotate` turns pairs
    of `2 * n` features by angles whose `n` cosines and sines are the row of a table at the token's position. They
    are the features from `from` on, a multiple of 8, or the first: features `i` and `i + n` of them are a pair or,
    `interleaved`, `2 * i` and `2 * i + 1`. The other features stay. A position past the table reads its last row.

    ```mlir
    %rotated = attn.append %k, %v to %kv at %slots query %q : tensor<?x?x32x128xbf16>
        norm %wk : tensor<?x128xf32> epsilon 1.0e-6 query_norm %wq : tensor<?x128xf32>
        rotate %cos, %sin at %positions : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?xi32>
        : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, !cache, tensor<?xi32> -> tensor<?x?x32x128xbf16>
    ```

    Numbers stay f32 from the load to the store, and are rounded once: to the type of the queries, to that of a
    plain cache, or to quantized values. (PyTorch's separate operations round after each.) Queries are written for
    every row, and keys and values for rows with a slot. `norm` and `rotate` do not change values.

    The rows of an append with such a clause may lie apart, as slices of a product do, and pages may have any
    strides: both are given at launch. `strided` says so without a norm and a rotation. Slots past the pages are
    then passed over.

    ```mlir
    attn.append %k, %v to %kv at %slots strided
        : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, !cache, tensor<?xi32>
    ```

    The norm of a latent is that of its value, and its weights are as many. Queries are the features that turn,
    `[layers, rows, q_heads, 2 * n]`, and have no norm: the other features of a query come from another product.

    ```mlir
    %turned = attn.append %k to %kv at %slots query %q : tensor<?x?x128x64xbf16>
        norm %w : tensor<?x512xf32> epsilon 1.0e-6
        rotate %cos, %sin at %positions : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32> from 512 interleaved
        : tensor<?x?x1x576xbf16>, !latents, tensor<?xi32> -> tensor<?x?x128x64xbf16>
    ```
  }];
  let arguments = (ins Attn_RowsTensor:$k, Optional<Attn_RowsTensor>:$v, Attn_CacheOperand:$kv, Attn_SlotsTensor:$slots,
                       Optional<Attn_RowsTensor>:$q, Optional<Attn_WeightsTensor>:$k_norm,
                       Optional<Attn_WeightsTensor>:$q_norm, Optional<Attn_AnglesTensor>:$cos,
                       Optional<Attn_AnglesTensor>:$sin, Optional<Attn_PositionsTensor>:$positions,
                       Optional<Attn_StatusTensor>:$status, OptionalAttr<F32Attr>:$epsilon,
                       OptionalAttr<I64Attr>:$first, UnitAttr:$interleaved, UnitAttr:$strided);
  let results = (outs Optional<Attn_RowsTensor>:$rotated);
  let assemblyFormat = [{
    $k (`,` $v^)? `to` $kv `at` $slots (`query` $q^ `:` type($q))?
    (`norm` $k_norm^ `:` type($k_norm) `epsilon` $epsilon)? (`query_norm` $q_norm^ `:` type($q_norm))?
    (`rotate` $cos^ `,` $sin `at` $positions `:` type($cos) `,` type($sin) `,` type($positions))?
    (`from` $first^)? (`interleaved` $interleaved^)? (`strided` $strided^)? (`status` $status^)? attr-dict
    `:` custom<RowTypes>(ref($v), type($k), type($v), type($kv)) `,` type($slots) (`,` type($status)^)?
    (`->` type($rotated)^)?
  }];
}

def Attn_MoveRowsOp : Attn_CacheOp<"move", [MemRead, MemWrite]> {
  let summary = "copies slots of a cache to other slots of it";
  let description = [{
    Copies slot `from[r]` to slot `to[r]`, in every layer. No slot may be in `to` twice, nor in both lists, so
    the rows may be copied in any order, or all at once. A row is skipped where both its slots are negative.

    Two uses: copying a page that two sequences will write to, and committing the accepted path of a
    speculated tree.

    ```mlir
    attn.move %kv from %from to %to : !cache, tensor<?xi32>, tensor<?xi32>
    ```
  }];
  let arguments = (ins Attn_CacheOperand:$kv, Attn_SlotsTensor:$from, Attn_SlotsTensor:$to);
  let assemblyFormat = [{
    $kv `from` $from `to` $to attr-dict `:` type($kv) `,` type($from) `,` type($to)
  }];
}

def Attn_GatherRowsOp : Attn_CacheOp<"gather", [MemRead]> {
  let summary = "reads slots of a cache into rows";
  let description = [{
    Copies slot `slots[r]` to row `r` of `k` and `v`, in every layer: to swap a sequence to other memory, or
    to inspect it. Skipped rows are unchanged. A slot may be read by several rows. Quantized values are
    dequantized. A latent cache gives no `v`.

    ```mlir
    %k, %v = attn.gather %kv at %slots
        : !cache, tensor<?xi32> -> tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>
    ```
  }];
  let arguments = (ins Attn_CacheOperand:$kv, Attn_SlotsTensor:$slots);
  let results = (outs Attn_RowsTensor:$k, Optional<Attn_RowsTensor>:$v);
  let assemblyFormat = [{
    $kv `at` $slots attr-dict `:` type($kv) `,` type($slots) `->` type($k) (`,` type($v)^)?
  }];
}

def Attn_RequantizeRowsOp : Attn_CacheOp<"requantize", [MemRead, MemWrite]> {
  let summary = "copies slots of a cache to slots of another cache of fewer bits";
  let description = [{
    Dequantizes slot `from[r]` of one cache and quantizes it again into slot `to[r]` of the other, in every
    layer. The grids of integers nest (255 = 17 * 15, 15 = 5 * 3), so little is lost by storing more bits
    first. A row is skipped where both its slots are negative.

    ```mlir
    attn.requantize %high at %from to %low at %to : !cache, tensor<?xi32>, !codes, tensor<?xi32>
    ```
  }];
  let arguments = (ins Attn_CacheOperand:$kv, Attn_SlotsTensor:$from, Attn_CacheOperand:$into, Attn_SlotsTensor:$to,
                       Optional<Attn_StatusTensor>:$status);
  let assemblyFormat = [{
    $kv `at` $from `to` $into `at` $to (`status` $status^)? attr-dict
    `:` type($kv) `,` type($from) `,` type($into) `,` type($to) (`,` type($status)^)?
  }];
}

#endif

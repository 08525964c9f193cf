//===- AttnCacheOps.td - Rows into, within and out of a cache -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNCACHEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNCACHEOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Attention sees a cache through block tables; what is written to it is said in *slots*, its places for tokens
// counted through memory: of a paged store `page * page_size + offset`, of a packed one the token's row. A slot
// holds the keys and values of one token in all KV heads. Layers lie one behind the other, `[layers][pages]...`,
// and slot s is slot s in each.
//
// All operations copy rows from one list of places to another, in all layers at once. What keeps them fit for
// a launch that is recorded once and replayed: how many rows there are, and which, is read from device memory, and a
// row whose slot is negative is skipped.
//
// Rows outside of a cache are f16 or bf16. A cache of codes (`!attn.quantized`) is written by quantizing them and read by
// dequantizing, as `attn_rt/tensor/Format.h` says, and its slots move as they are, metadata included. Scales that are given
// (per tensor or head) are read, `[layers, 1]` or `[layers, heads]`; others are found for each row. A row of codes is
// whole bytes, and no two rows share one. Numbers that have no code: a NaN is stored as 0, an infinity as the largest
// number of its sign. `status`, an `i32[1]`, counts them: they are added to what it holds.

def Attn_RowsTensor
    : Attn_Described<AnyRankedTensor, "keys or values by row, `[layers, rows, kv_heads, dim]`, f16 or bf16, layers and rows dynamic">;
def Attn_SlotsTensor
    : Attn_Described<AnyRankedTensor, "a slot for each row, `tensor<?xi32>`; negative: the row is skipped">;
def Attn_StatusTensor
    : Attn_Described<AnyRankedTensor, "i32[1]: is added how many numbers were NaN or infinite">;
def Attn_CacheOperand
    : Attn_Described<Attn_KVType, "the cache, paged or packed: `kv.k_pages` and `kv.v_pages`, `[layers, pages, page, kv_heads, dim]` (codes with metadata by line: `[layers, pages, kv_heads, page, dim]`), or `kv.k` and `kv.v`, `[layers, tokens, kv_heads, dim]`">;

class Attn_CacheOp<string mnemonic, list<MemoryEffect> effects>
    : Op<Attn_Dialect, mnemonic, [MemoryEffects<effects>]> {
  let hasVerifier = 1;
}

def Attn_AppendRowsOp : Attn_CacheOp<"append", [MemRead, MemWrite]> {
  let summary = "writes new rows of keys and values to slots of a cache";
  let description = [{
    Row `r` of `k` and `v` becomes what slot `slots[r]` holds, in every layer;
    bit by bit, whatever the bits mean, or as codes. All other slots stay as they
    are. No two rows may go to one slot.

    ```mlir
    attn.append %k, %v to %kv at %slots
        : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, !cache, tensor<?xi32>
    ```
  }];
  let arguments = (ins Attn_RowsTensor:$k, Attn_RowsTensor:$v, Attn_CacheOperand:$kv, Attn_SlotsTensor:$slots,
                       Optional<Attn_StatusTensor>:$status);
  let assemblyFormat = [{
    $k `,` $v `to` $kv `at` $slots (`status` $status^)? attr-dict
    `:` type($k) `,` type($v) `,` type($kv) `,` type($slots) (`,` type($status)^)?
  }];
}

def Attn_MoveRowsOp : Attn_CacheOp<"move", [MemRead, MemWrite]> {
  let summary = "copies slots of a cache to other slots of it";
  let description = [{
    Slot `to[r]` becomes what slot `from[r]` holds, in every layer. No slot may
    be in `to` twice, nor in both lists, so the rows may be copied in any order,
    or all at once. A row is skipped where both its slots are negative.

    Copying a page that two sequences will write to is a move of its tokens,
    and so is committing the accepted path of a speculated tree.

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
    Row `r` of `k` and `v` becomes what slot `slots[r]` holds, in every layer:
    the way out of a cache, to swap a sequence to other memory or to look at it.
    Rows that are skipped stay as they are. A slot may be read by several rows.
    Codes are dequantized.

    ```mlir
    %k, %v = attn.gather %kv at %slots
        : !cache, tensor<?xi32> -> tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>
    ```
  }];
  let arguments = (ins Attn_CacheOperand:$kv, Attn_SlotsTensor:$slots);
  let results = (outs Attn_RowsTensor:$k, Attn_RowsTensor:$v);
  let assemblyFormat = [{
    $kv `at` $slots attr-dict `:` type($kv) `,` type($slots) `->` type($k) `,` type($v)
  }];
}

def Attn_RequantizeRowsOp : Attn_CacheOp<"requantize", [MemRead, MemWrite]> {
  let summary = "copies slots of a cache to slots of another, which stores numbers in fewer bits";
  let description = [{
    What slot `from[r]` of one cache stands for becomes what slot `to[r]` of the
    other holds, in every layer: the codes that are there are dequantized and
    quantized again. Grids of integer codes nest (255 = 17 * 15, 15 = 5 * 3), so
    little is lost by storing more bits first. A row is skipped where both its
    slots are negative.

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

//===- AttnRowOps.td - Rows of keys and values in a kernel -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of an operation on a cache walks the layers, the rows of its lists eight
// at a time, and the *pieces* of a row. A turn of a warp is a piece of eight rows:
//
//   attn.load_rows         reads it from where it is
//   attn.dequantize_rows   makes numbers of codes
//   attn.quantize_rows     makes codes of numbers
//   attn.store_rows          writes it to where it goes
//
// As attn.rows and attn.tokens do, a piece has the type of the whole: of rows that
// tensor's, of slots the cache's. What each lane holds of it is its *share*.
//
// The metadata of codes, where each row has its own, is a piece beside them. What
// one head of a row has are neighbours, and in a page so are the rows of a head:
// of metadata neighbouring lanes hold neighbouring rows, lane i of row i % 8.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNROWOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNROWOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_RowPart : I32EnumAttr<"RowPart", "keys or values", [
    I32EnumAttrCase<"Keys", 0, "keys">,
    I32EnumAttrCase<"Values", 1, "values">]> {
  let cppNamespace = "::mlir::attn";
}

def Attn_ShareAttr : AttrDef<Attn_Dialect, "Share"> {
  let mnemonic = "share";
  let summary = "what the lanes of a warp hold of a piece of eight rows";
  let description = [{
    A *chunk* is what one access of a lane takes. The `width` chunks of a row's piece lie in as many neighbouring lanes,
    rows one behind the other in the first `lanes` lanes, as often as it takes for eight rows. Of metadata eight
    neighbouring lanes hold the same chunk of eight rows.

    ```mlir
    #attn.share<chunk = 16, width = 32, lanes = 32>
    ```
  }];
  let parameters = (ins
    TypeParameter<"int64_t", "bytes of a chunk: 2, 4, 8 or 16">:$chunk,
    TypeParameter<"int64_t", "chunks of a row in one piece, at most 32">:$width,
    TypeParameter<"int64_t", "lanes that hold some">:$lanes);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Rows that a warp takes at once: their slots are one sector of a list.
    static constexpr int64_t rows = 8;
    /// Chunks that a lane holds.
    int64_t loads() const { return llvm::divideCeil(rows * getWidth(), getLanes()); }
    /// Whether each of them is of the same row in all lanes, if they are no metadata.
    bool isOneRow() const { return getWidth() == 32; }
  }];
}

class Attn_RowOp<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_LoadRowsOp : Attn_RowOp<"load_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a piece of eight rows";
  let description = [{
    Of `rows` on in their order or, `listed`, of the slots that eight lanes hold. Of row `i` nothing is read where lane `i`
    has a negative `mark`.

    ```mlir
    %p = attn.load_rows keys of %kv listed %slot where %mark layer %layer piece %piece as <chunk = 16, width = 16, lanes = 32> : !cache -> !cache
    %m = attn.load_rows keys meta of %codes listed %slot where %mark layer %layer piece %piece
        as <chunk = 4, width = 8, lanes = 32> : !codes -> !codes
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    UnitAttr:$meta,
    Attn_Described<AnyType, "rows, or a cache">:$from,
    UnitAttr:$listed,
    Arg<I32, "the first row or, listed, each lane's slot">:$rows,
    Arg<I32, "each lane's own: negative where its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "the piece">:$result);
  let assemblyFormat = [{
    $part (`meta` $meta^)? `of` $from (`listed` $listed^)? $rows `where` $mark `layer` $layer `piece` $piece `as` $share
    attr-dict `:` type($from) `->` type($result)
  }];
}

def Attn_StoreRowsOp : Attn_RowOp<"store_rows", [MemoryEffects<[MemWrite]>]> {
  let summary = "writes a piece of eight rows";
  let description = [{
    To `rows` as `attn.load_rows` reads them.

    ```mlir
    attn.store_rows %p to keys of %kv listed %slot where %mark layer %layer piece %piece as <chunk = 16, width = 16, lanes = 32> : !rows -> !cache
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "the piece">:$value,
    Attn_RowPart:$part,
    UnitAttr:$meta,
    Attn_Described<AnyType, "rows, or a cache">:$to,
    UnitAttr:$listed,
    Arg<I32, "the first row or, listed, each lane's slot">:$rows,
    Arg<I32, "each lane's own: negative where its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share);
  let assemblyFormat = [{
    $value `to` $part (`meta` $meta^)? `of` $to (`listed` $listed^)? $rows `where` $mark `layer` $layer `piece` $piece
    `as` $share attr-dict `:` type($value) `->` type($to)
  }];
}

def Attn_QuantizeRowsOp : Attn_RowOp<"quantize_rows", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "makes codes of a piece of numbers";
  let description = [{
    As `quantizeRow` in `attn_rt/tensor/Format.h` does, to the bit: eight numbers of a lane become their codes in the format of
    the cache `for` which they are. Where rows have metadata of their own it is found, and is the second result; else
    scales are read. `status` counts the numbers that were NaN or infinite. Approximates: rounds to nearest, ties to even.

    ```mlir
    %c, %m = attn.quantize_rows keys of %p for %kv layer %layer piece %piece as <chunk = 8, width = 16, lanes = 32> : !rows, !codes -> !codes, !codes
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows,
    Attn_Described<Attn_KVType, "the cache">:$kv,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share,
    Optional<Attn_Described<AnyRankedTensor, "i32[1]">>:$status);
  let results = (outs
    Attn_Described<AnyType, "their codes">:$codes,
    Optional<Attn_Described<AnyType, "metadata of each row">>:$meta);
  let assemblyFormat = [{
    $part `of` $rows `for` $kv `layer` $layer `piece` $piece `as` $share (`status` $status^)? attr-dict
    `:` type($rows) `,` qualified(type($kv)) (`,` type($status)^)? `->` type(results)
  }];
}

def Attn_DequantizeRowsOp : Attn_RowOp<"dequantize_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "makes numbers of a piece of codes";
  let description = [{
    In f32, as `RowDecoder` in `attn_rt/tensor/Format.h` does, and rounded once to what the result holds.

    ```mlir
    %p = attn.dequantize_rows keys of %c, %m from %kv layer %layer piece %piece as <chunk = 8, width = 16, lanes = 32> : !codes, !codes, !codes -> !rows
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    Attn_Described<AnyType, "a piece of codes">:$codes,
    Optional<Attn_Described<AnyType, "metadata of each row">>:$meta,
    Attn_Described<Attn_KVType, "the cache that they are from">:$kv,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows);
  let assemblyFormat = [{
    $part `of` $codes (`,` $meta^)? `from` $kv `layer` $layer `piece` $piece `as` $share attr-dict
    `:` type($codes) (`,` type($meta)^)? `,` qualified(type($kv)) `->` type($rows)
  }];
}

#endif

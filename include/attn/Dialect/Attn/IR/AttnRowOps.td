//===- AttnRowOps.td - Rows of keys and values in a kernel -*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of an operation on a cache walks the layers, the rows of its lists, eight at a time, and the
// *pieces* of a row. One iteration of a warp handles a piece of eight rows:
//
//   attn.load_rows         reads the piece from memory
//   attn.dequantize_rows   dequantizes it
//   attn.quantize_rows     quantizes it
//   attn.store_rows          writes the piece to memory
//
// A piece has, like attn.rows and attn.tokens, the type of the whole: the tensor's type for rows, the
// cache's type for slots. The part of a piece in one lane is the lane's *share*.
//
// If each row has metadata of its own, the metadata is a piece beside the elements. The metadata of one
// head of a row is contiguous, and in a page so are the rows of a head. So neighbouring lanes hold the
// metadata of neighbouring rows: lane i that of row i % 8.
//
// A kernel that normalizes or rotates keys walks single rows instead, so that a warp reads a row's cosines
// and sines once. Its piece is some heads of one row (`heads` of attn.share), and two more operations compute
// with it, each lane with eight neighbouring features:
//
//   attn.normalize_rows    divides heads by the root of their mean square
//   attn.rotate_rows       turns pairs of features
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
  let summary = "the distribution of a piece of eight rows over the lanes of a warp";
  let description = [{
    A *chunk* is the bytes of one access of a lane. The `width` chunks of a row's piece lie in as many
    neighbouring lanes. Rows follow each other in the first `lanes` lanes, repeated until eight rows are
    covered. For metadata, eight neighbouring lanes hold the same chunk of eight rows.

    With `heads`, a piece is so many heads of one row in place of eight rows, `width` is the chunks of a head,
    and chunks of metadata follow each other in the order of heads. A piece is one head if that has more than 32
    chunks, which several loads then read. `apart`: the launch says how far the heads of a row are apart.

    ```mlir
    #attn.share<chunk = 16, width = 32, lanes = 32>
    #attn.share<chunk = 16, width = 16, lanes = 32, heads = 8>
    #attn.share<chunk = 16, width = 72, lanes = 32, heads = 1>
    ```
  }];
  let parameters = (ins
    TypeParameter<"int64_t", "bytes of a chunk: 2, 4, 8 or 16">:$chunk,
    TypeParameter<"int64_t", "chunks of a row in one piece, at most 32, or of a head">:$width,
    TypeParameter<"int64_t", "lanes that hold chunks">:$lanes,
    DefaultValuedParameter<"int64_t", "0", "heads of one row; 0: eight rows">:$heads,
    DefaultValuedParameter<"bool", "false", "heads of rows lie as far apart as the launch says">:$apart);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Rows that a warp handles at once: their slots are one sector of a list.
    static constexpr int64_t rows = 8;
    /// Chunks per lane.
    int64_t loads() const { return llvm::divideCeil(parts() * getWidth(), getLanes()); }
    /// Parts of a piece that are `width` chunks each: heads of a row, or rows.
    int64_t parts() const { return getHeads() ? getHeads() : rows; }
    /// Whether each of them is of the same row, or head, in all lanes, metadata aside.
    bool isOneRow() const { return getWidth() == 32; }
    /// Whether several loads read one head.
    bool isWide() const { return getWidth() > 32; }
  }];
}

class Attn_RowOp<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_LoadRowsOp : Attn_RowOp<"load_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a piece of eight rows";
  let description = [{
    Reads eight rows from `rows` on in their order or, with `listed`, the rows at the slots that eight lanes
    hold. Row `i` is not read if `mark` is negative in lane `i`.

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
    Arg<I32, "the first row or, with `listed`, each lane's slot">:$rows,
    Arg<I32, "different in each lane: negative if its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "index of the piece">:$piece,
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
    Writes to `rows`, which have the meaning of `rows` of `attn.load_rows`.

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
    Arg<I32, "the first row or, with `listed`, each lane's slot">:$rows,
    Arg<I32, "different in each lane: negative if its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "index of the piece">:$piece,
    Attn_ShareAttr:$share);
  let assemblyFormat = [{
    $value `to` $part (`meta` $meta^)? `of` $to (`listed` $listed^)? $rows `where` $mark `layer` $layer `piece` $piece
    `as` $share attr-dict `:` type($value) `->` type($to)
  }];
}

def Attn_QuantizeRowsOp : Attn_RowOp<"quantize_rows", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "quantizes a piece";
  let description = [{
    Quantizes eight numbers of a lane to the format of the cache `for`, with the same bits as `quantizeRow` in
    `attn_rt/tensor/Format.h`. Metadata of rows is computed, and is the second result; other scales are read.
    The number of NaNs and infinities is added to `status`. Approximates: rounds to nearest, ties to even.

    ```mlir
    %c, %m = attn.quantize_rows keys of %p for %kv layer %layer piece %piece as <chunk = 8, width = 16, lanes = 32> : !rows, !codes -> !codes, !codes
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows,
    Attn_Described<Attn_KVType, "the cache">:$kv,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "index of the piece">:$piece,
    Attn_ShareAttr:$share,
    Optional<Attn_Described<AnyRankedTensor, "i32[1]">>:$status);
  let results = (outs
    Attn_Described<AnyType, "the quantized piece">:$codes,
    Optional<Attn_Described<AnyType, "metadata of each row">>:$meta);
  let assemblyFormat = [{
    $part `of` $rows `for` $kv `layer` $layer `piece` $piece `as` $share (`status` $status^)? attr-dict
    `:` type($rows) `,` qualified(type($kv)) (`,` type($status)^)? `->` type(results)
  }];
}

def Attn_NormalizeRowsOp : Attn_RowOp<"normalize_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "divides heads by the root of their mean square, and multiplies them by weights";
  let description = [{
    Computes `x * r * w` in f32, with `r = 1 / sqrt(mean(x^2) + epsilon)` of a head's features that have a weight,
    which are its first, and rounds once to the result's element type. The other features stay. The sum of squares is that of `normalizeRow` in `attn_rt/tensor/Prologue.h`, to the bit.

    ```mlir
    %n = attn.normalize_rows %p by %weight epsilon 1.0e-6 layer %layer as <chunk = 16, width = 16, lanes = 32, heads = 8> : !rows, tensor<?x128xf32> -> tensor<?x?x8x128xf32>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows,
    Attn_Described<AnyRankedTensor, "weights, `[layers, features]`">:$weight,
    F32Attr:$epsilon,
    Arg<I64, "the layer">:$layer,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "the normalized piece">:$result);
  let assemblyFormat = [{
    $rows `by` $weight `epsilon` $epsilon `layer` $layer `as` $share attr-dict
    `:` type($rows) `,` type($weight) `->` type($result)
  }];
}

def Attn_RotateRowsOp : Attn_RowOp<"rotate_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "turns pairs of features by the angles of a position";
  let description = [{
    Computes `x * cos - y * sin` and `y * cos + x * sin` of pairs `(x, y)` in f32, and rounds once to the result's
    element type. `attn.append` says which features are pairs.

    ```mlir
    %r = attn.rotate_rows %n by %cos, %sin at %position as <chunk = 16, width = 16, lanes = 32, heads = 8> : !rows, tensor<?x64xf32>, tensor<?x64xf32> -> !rows
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows,
    Attn_Described<AnyRankedTensor, "cosines, `[positions, angles]`">:$cos,
    Attn_Described<AnyRankedTensor, "sines">:$sin,
    Arg<I32, "the row of the tables">:$position,
    OptionalAttr<I64Attr>:$first,
    UnitAttr:$interleaved,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "the rotated piece">:$result);
  let assemblyFormat = [{
    $rows (`interleaved` $interleaved^)? `by` $cos `,` $sin `at` $position (`from` $first^)? `as` $share attr-dict
    `:` type($rows) `,` type($cos) `,` type($sin) `->` type($result)
  }];
}

def Attn_DequantizeRowsOp : Attn_RowOp<"dequantize_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "dequantizes a piece";
  let description = [{
    Dequantizes in f32, as `RowDecoder` in `attn_rt/tensor/Format.h` does, and rounds once to the result's
    element type.

    ```mlir
    %p = attn.dequantize_rows keys of %c, %m from %kv layer %layer piece %piece as <chunk = 8, width = 16, lanes = 32> : !codes, !codes, !codes -> !rows
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    Attn_Described<AnyType, "a quantized piece">:$codes,
    Optional<Attn_Described<AnyType, "metadata of each row">>:$meta,
    Attn_Described<Attn_KVType, "the cache that it is from">:$kv,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "index of the piece">:$piece,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "a piece of f16, bf16 or f32">:$rows);
  let assemblyFormat = [{
    $part `of` $codes (`,` $meta^)? `from` $kv `layer` $layer `piece` $piece `as` $share attr-dict
    `:` type($codes) (`,` type($meta)^)? `,` qualified(type($kv)) `->` type($rows)
  }];
}

#endif

//===- AttnRowOps.td - Rows of keys and values in a kernel -*- tablegen -*-===//
//
// A kernel of an operation on a cache walks the layers, the rows of its lists eight
// at a time, and the *pieces* of a row. A turn of a warp is a piece of eight rows:
//
//   attn.take_rows      reads it from where it is
//   attn.put_rows       writes it to where it goes
//
// As attn.rows and attn.tokens do, a piece has the type of the whole: of rows that
// tensor's, of slots the cache's. What each lane holds of it is its *share*.
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
    A *unit* is what one access of a lane takes. The `width` units of a row's piece lie in as many neighbouring lanes,
    rows one behind the other in the first `lanes` lanes, as often as it takes for eight rows.

    ```mlir
    #attn.share<unit = 16, width = 32, lanes = 32>
    ```
  }];
  let parameters = (ins
    TypeParameter<"int64_t", "bytes of a unit: 2, 4, 8 or 16">:$unit,
    TypeParameter<"int64_t", "units of a row in one piece, at most 32">:$width,
    TypeParameter<"int64_t", "lanes that hold some">:$lanes);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Rows that a warp takes at once: their slots are one sector of a list.
    static constexpr int64_t rows = 8;
    /// Units that a lane holds.
    int64_t loads() const { return llvm::divideCeil(rows * getWidth(), getLanes()); }
    /// Whether each of them is of the same row in all lanes.
    bool isOneRow() const { return getWidth() == 32; }
  }];
}

class Attn_RowOp<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_TakeRowsOp : Attn_RowOp<"take_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a piece of eight rows";
  let description = [{
    Of `rows` on in their order or, `listed`, of the slots that eight lanes hold. Of row `i` nothing is read where lane `i`
    has a negative `mark`.

    ```mlir
    %p = attn.take_rows keys of %kv listed %slots where %mark layer %layer piece %piece as #attn.share<...> : !cache
    ```
  }];
  let arguments = (ins
    Attn_RowPart:$part,
    Attn_Described<AnyType, "rows, or a cache">:$from,
    UnitAttr:$listed,
    Arg<I32, "the first row or, listed, each lane's slot">:$rows,
    Arg<I32, "each lane's own: negative where its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share);
  let results = (outs Attn_Described<AnyType, "the piece">:$result);
  let assemblyFormat = [{
    $part `of` $from (`listed` $listed^)? $rows `where` $mark `layer` $layer `piece` $piece `as` $share attr-dict
    `:` type($from) `->` type($result)
  }];
}

def Attn_PutRowsOp : Attn_RowOp<"put_rows", [MemoryEffects<[MemWrite]>]> {
  let summary = "writes a piece of eight rows";
  let description = [{
    To `rows` as `attn.take_rows` reads them.

    ```mlir
    attn.put_rows %p to keys of %kv listed %slots where %mark layer %layer piece %piece as #attn.share<...> : !rows -> !cache
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "the piece">:$value,
    Attn_RowPart:$part,
    Attn_Described<AnyType, "rows, or a cache">:$to,
    UnitAttr:$listed,
    Arg<I32, "the first row or, listed, each lane's slot">:$rows,
    Arg<I32, "each lane's own: negative where its row is skipped">:$mark,
    Arg<I64, "the layer">:$layer,
    Arg<I32, "which piece of the rows">:$piece,
    Attn_ShareAttr:$share);
  let assemblyFormat = [{
    $value `to` $part `of` $to (`listed` $listed^)? $rows `where` $mark `layer` $layer `piece` $piece `as` $share attr-dict
    `:` type($value) `->` type($to)
  }];
}

#endif

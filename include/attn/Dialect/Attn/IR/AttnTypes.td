//===- AttnTypes.td - KV operands and softmax states -------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNTYPES_TD
#define ATTN_DIALECT_ATTN_IR_ATTNTYPES_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Attn_Store : I32EnumAttr<"Store", "how a token of an instance is found in memory", [
    I32EnumAttrCase<"Dense", 0, "dense">,
    I32EnumAttrCase<"Packed", 1, "packed">,
    I32EnumAttrCase<"Paged", 2, "paged">,
    I32EnumAttrCase<"Unified", 3, "unified">]> {
  let cppNamespace = "::mlir::attn";
}

// The prose of an operand is the summary of its constraint: that is what both the generated reference and the
// verifier's message print.
class Attn_Described<TypeConstraint base, string prose> : Type<base.predicate, prose, base.cppType>;

class Attn_Type<string name, string typeMnemonic> : TypeDef<Attn_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Attn_Per : I32EnumAttr<"Per", "which codes share metadata", [
    I32EnumAttrCase<"Tensor", 1, "tensor">,
    I32EnumAttrCase<"Head", 2, "head">,
    I32EnumAttrCase<"Token", 3, "token">,
    I32EnumAttrCase<"Group", 4, "group">]> {
  let cppNamespace = "::mlir::attn";
}

def Attn_QuantizedType : Attn_Type<"Quantized", "quantized"> {
  let summary = "elements of keys or values in 8 bits and less";
  let description = [{
    A key or value is made of its *code* and of metadata that it shares with others:

    | codes | a number is | `per` | metadata of a part `k` of an argument `kv` (`v` likewise) |
    |---|---|---|---|
    | `f8E4M3FN`, `f8E5M2` | `code * scale` | `tensor` | `kv.k_scales f32[1]` |
    | | | `head` | `kv.k_scales f32[heads]` |
    | | | `token` (of one head) | `kv.k_scales f32`, by line |
    | floats in blocks | `code * scale`, in some `* tensor_scale` | as many neighbouring features of a token and head as `attn_rt/tensor/Format.h` says, with the type of their scales | `kv.k_scales`, by line, each a byte for each block, and as many as make a multiple of four; `kv.k_tensor_scale f32[1]` |
    | `i8`, `i4`, `i2`: unsigned | `code * scale + zero` | 16, 32, 64, 128, or the dim: neighbouring features of a token and head | `kv.k_meta f16`, by line, each `[dim / per, 2]`: scale, zero |

    Metadata *by line* is `[pages, heads, P, ...]` in a paged store, so that what a head needs of a page lies together,
    `[pages, P, ...]` in a unified one, `[tokens, heads, ...]` in a packed one and `[instances, tokens, heads, ...]` in a dense one. All scales are finite
    and above 0. Codes of integers and of f4E2M1FN are packed little end first: feature `f` lies in bits `f % (8/bits) * bits` of byte
    `f * bits / 8` of its row, and their tensor is `u8[..., heads, dim * bits / 8]`. Rows are copied 16 bytes at a time,
    so dims are multiples of as many codes.

    ```mlir
    !attn.quantized<i4, per = 64>
    !attn.quantized<f8E4M3FN, per = token>
    !attn.quantized<f4E2M1FN, per = 32, scale = f8E8M0FNU>
    !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>
    ```
  }];
  let parameters = (ins
    TypeParameter<"::mlir::Type", "a code">:$element,
    TypeParameter<"::mlir::attn::Per", "which of them share metadata">:$per,
    TypeParameter<"int64_t", "neighbouring features of a group, 0 where there are none">:$group,
    TypeParameter<"::mlir::Type", "a scale of a block, null where scales are as wide as others">:$scale);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_KVType : Attn_Type<"KV", "kv"> {
  let summary = "a KV operand: a collection of instances of keys and values";
  let description = [{
    A KV operand is a collection of instances (one per sequence, one shared by
    many, ...), addressed by instance and KV head. Each instance has a length,
    the position of its first token and the range of query rows that see it;
    the *store* maps its tokens to memory:

    | store | token `t` of instance `i` | tensors of an argument `kv` |
    |---|---|---|
    | `dense` | row `t` of plane `i` | `kv.k`, `kv.v`: `[instances, tokens, heads, dim]` |
    | `packed` | row `start[i] + t` | `kv.k`, `kv.v`: `[tokens, heads, dim]`, `kv.start i32[instances + 1]` |
    | `paged<P>` | slot `t % P` of page `block_table[i][t / P]` | `kv.k_pages`, `kv.v_pages`: `[pages, P, heads, dim]`, `kv.block_table i32[instances, max_pages]` |

    | `unified<P>` | slot `t % P` of page `block_table[i][h][t / P]` | `kv.k_pages`, `kv.v_pages`: `[pages, P, dim]`, `kv.block_table i32[instances, heads, max_pages]` |

    (written once for all in `attn_rt/tensor/Store.h`; pages of codes that have metadata by line are `[pages, heads, P, dim]`),
    all with `kv.lengths` and `kv.pos0`, both `i32[instances]`, and optionally
    `kv.rows i32[instances, 2]`.

    *Ragged* stores keep for each head what that head needs: their lengths are
    `i32[instances, heads]` and, where paged, their tables
    `i32[instances, heads, max_pages]`. The place of a token is that of its head
    only: slice `h` of page `block_table[i][h][t / P]` holds tokens of head `h`,
    so each head has free pages of its own, and the same page may be anything
    else to another head. The position of a head's token is `pos0` and its
    place in that head's list; a row sees of each head what it sees of these
    positions. Where no `q_pos` says otherwise, the rows of a sequence end
    where its longest head does.

    Pages of a *unified* store belong to no head: each holds P tokens of whichever
    head's list names it, codes and metadata of keys and values side by side. Its
    tensors are views into one memory `[pages, bytes]`, whose `bytes` the launch
    says; operands of several formats, and of several `P`, may share it. It is
    ragged without a word.

    Elements of f16 and bf16 are stored as they are, in the type of the queries;
    other elements are *codes*, see `!attn.quantized`. Keys and values may be stored
    differently.

    `heads = ?` is the store of one head class (`AttnHeadClasses.td`): it holds
    the heads of that class only, in their order, and `heads` in the table is
    how many the run-time tensor `classes` puts into it.

    ```mlir
    !attn.kv<paged<16>, heads = 8, dim = 128, key = bf16, value = bf16>
    !attn.kv<dense, heads = 1, dim = 192, value_dim = 128, key = f16, value = f16>
    !attn.kv<paged<16>, heads = ?, dim = 128, key = bf16, value = bf16>
    !attn.kv<paged<16>, ragged, heads = 8, dim = 128, key = bf16, value = bf16>
    !attn.kv<paged<16>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>
    !attn.kv<unified<32>, heads = 8, dim = 128, key = !attn.quantized<i8, per = 128>, value = !attn.quantized<i4, per = 64>>
    ```
  }];
  let parameters = (ins
    TypeParameter<"::mlir::attn::Store", "how tokens are found in memory">:$store,
    TypeParameter<"int64_t", "tokens per page, a power of two from 1 to 256; 0 unless there are pages">:$page,
    TypeParameter<"bool", "whether every KV head has a length and pages of its own">:$ragged,
    TypeParameter<"int64_t", "KV heads, dynamic in the store of one head class">:$heads,
    TypeParameter<"int64_t", "features of a key, a multiple of 8 from 8 to 256">:$keyDim,
    TypeParameter<"int64_t", "features of a value, like those of a key and by default as many">:$valueDim,
    TypeParameter<"::mlir::Type", "element type of keys: f16, bf16 or codes">:$key,
    TypeParameter<"::mlir::Type", "element type of values: f16, bf16 or codes">:$value);
  let extraClassDeclaration = [{
    /// Whether this is the store of one head class.
    bool isOfClass() const { return ShapedType::isDynamic(getHeads()); }
    /// Whether tokens lie in pages that a block table names.
    bool isPaged() const { return hasPages(getStore()); }
    static bool hasPages(::mlir::attn::Store store) {
      return store == ::mlir::attn::Store::Paged || store == ::mlir::attn::Store::Unified;
    }
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_StateType : Attn_Type<"State", "state"> {
  let summary = "the state of a partial softmax, one per query row and head";
  let description = [{
    For every row and query head a maximum `m`, a sum `l` and an accumulator
    `acc` of `value_dim` features, all f32: what a softmax over *part* of the
    keys needs to be joined with the rest. `AttnOnlineOps.td` has the algebra.

    ```mlir
    !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let parameters = (ins
    TypeParameter<"int64_t", "query heads">:$heads,
    TypeParameter<"int64_t", "features of the accumulator">:$valueDim);
  let assemblyFormat = "`<` `heads` `=` $heads `,` `value_dim` `=` $valueDim `>`";
  let genVerifyDecl = 1;
}

def Attn_Stationary : I32EnumAttr<"Stationary", "what a kernel holds while it walks the other", [
    I32EnumAttrCase<"Rows", 0, "rows">,
    I32EnumAttrCase<"Tokens", 1, "tokens">,
    I32EnumAttrCase<"Keys", 2, "keys">,
    I32EnumAttrCase<"Values", 3, "values">]> {
  let description = [{
    Tokens are keys and values. A kernel of gradients may hold them for the gradient of one of the two: `keys` or
    `values`.
  }];
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}

def Attn_StationaryAttr : EnumAttr<Attn_Dialect, Attn_Stationary, "stationary"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_FusedPart : I32EnumAttr<"FusedPart", "what a kernel does to sums of rows' gradients to which others add", [
    I32EnumAttrCase<"Begin", 0, "begin">,
    I32EnumAttrCase<"Add", 1, "add">,
    I32EnumAttrCase<"End", 2, "end">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}
def Attn_FusedPartAttr : EnumAttr<Attn_Dialect, Attn_FusedPart, "fused_part"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_GradientType : Attn_Type<"Gradient", "gradient"> {
  let summary = "a sum of gradients: of query rows, or of the keys and values of tokens";
  let description = [{
    Where rows are held, an accumulator of `key_dim` features for each row and
    query head; where tokens are, one of `key_dim` and one of `value_dim`
    features for each token and KV head, or one of the two (`of = keys`,
    `of = values`), all f32. Zeros and addition make it a
    monoid, so that tokens of rows, and rows of tokens, may come in any order
    and grouping: `AttnGradientOps.td`.

    ```mlir
    !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128>
    ```
  }];
  let parameters = (ins
    EnumParameter<Attn_Stationary>:$of,
    TypeParameter<"int64_t", "query heads">:$heads,
    TypeParameter<"int64_t", "features of a key">:$keyDim,
    TypeParameter<"int64_t", "features of a value">:$valueDim);
  let assemblyFormat = [{
    `<` `of` `=` $of `,` `heads` `=` $heads `,` `key_dim` `=` $keyDim `,` `value_dim` `=` $valueDim `>`
  }];
}

def Attn_Mmas : I32EnumAttr<"Mmas", "which instructions multiply", [
    I32EnumAttrCase<"Mma", 0, "mma">,
    I32EnumAttrCase<"Wgmma", 1, "wgmma">,
    I32EnumAttrCase<"Started", 2, "started">]> {
  let cppNamespace = "::mlir::attn";
}

def Attn_Together : I32EnumAttr<"Together", "what is made of the heads of a group", [
    I32EnumAttrCase<"Max", 0, "max">,
    I32EnumAttrCase<"Mean", 1, "mean">,
    I32EnumAttrCase<"Sum", 2, "sum">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}

def Attn_TogetherAttr : EnumAttr<Attn_Dialect, Attn_Together, "together"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_SignificanceType : Attn_Type<"Significance", "significance"> {
  let summary = "what tokens were worth to rows so far";
  let description = [{
    For each token and query head the sum over rows of the token's weight, f32; when it is written, of a head
    group one number, as `of` says. Zeros and addition make it a monoid: `AttnSignificanceOps.td`.

    ```mlir
    !attn.significance<of = max, heads = 32>
    ```
  }];
  let parameters = (ins
    EnumParameter<Attn_Together>:$of,
    TypeParameter<"int64_t", "query heads">:$heads);
  let assemblyFormat = "`<` `of` `=` $of `,` `heads` `=` $heads `>`";
}

#endif

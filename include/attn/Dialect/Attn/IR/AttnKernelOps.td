//===- AttnKernelOps.td - Online operations in a kernel ----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parts of tensors
// ================
//
// An online operation says what is computed, and not how much of it at a time. A chain of updates over a part
// of the rows and a part of a region's tokens is the same chain, by the algebra of AttnOnlineOps.td. So a
// kernel consists of the same operations as the function it comes from, in loops, on *parts*:
//
//   attn.rows      the rows of one task of the plan, a part of the query
//   attn.tokens    the tokens of one tile, a part of a region
//   attn.staged    either of them, with its copies on the chip
//   attn.one_of    one of several updates of a state: a tile is of one region
//
// A part has the type of the whole; the kernel's schedule decides how many rows and tokens it has. States of
// parts need not be finished by the kernel that began them. `attn.write` may store one as output and LSE (the
// unit in which l = 1), which the merge kernel reads:
//
//   attn.parts     the union of the states that other kernels stored for a row
//   attn.stored    up to 32 of those states
//   attn.warps     the union of the states of a block's warps for the same rows
//
// Each of these operations implements its own expansion on one tile: OnlineOpInterface
// (attn/Conversion/OnlineOpInterface.td).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNKERNELOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNKERNELOPS_TD

include "attn/Dialect/Attn/IR/AttnHeadClasses.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"

def Attn_FormTraits : I32BitEnumAttr<"FormTraits", "properties of all states of a kernel", [
    I32BitEnumAttrCaseNone<"None", "none">,
    I32BitEnumAttrCaseBit<"TokensFirst", 0, "tokens_first">,
    I32BitEnumAttrCaseBit<"FixedUnit", 1, "fixed_unit">,
    I32BitEnumAttrCaseBit<"Lifts", 2, "lifts">,
    I32BitEnumAttrCaseBit<"Lists", 3, "lists">,
    I32BitEnumAttrCaseBit<"KeyScale", 4, "key_scale">,
    I32BitEnumAttrCaseBit<"ValueScale", 5, "value_scale">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}

def Attn_FormAttr : AttrDef<Attn_Dialect, "Form"> {
  let mnemonic = "form";
  let summary = "shapes of rows, tokens and states in the warps of a kernel";
  let description = [{
    Passes after --attn-walk-plan read this attribute, and neither the kernel's schedule nor its other
    operations.

    | trait | of the kernel |
    |---|---|
    | `tokens_first` | tokens are the left operand of products |
    | `fixed_unit` | scores are bounded, and states keep the unit they begin with |
    | `lifts` | weights of some region are multiplied by the scales of its values; weights of the other regions leave headroom for that |
    | `lists` | a segment may be a list of single tokens |
    | `key_scale`, `value_scale` | one scale holds for all keys, or values, that a task reads |

    ```mlir
    #attn.form<mmas = wgmma, stationary = rows, rows = 16, keys = 128, heads = 32, kv_heads = 8, key_dim = 80, value_dim = 80, key_tile = 80, value_tile = 80, element = bf16, traits = fixed_unit, unit = 30.0 : f32>
    ```
  }];
  let parameters = (ins
    EnumParameter<Attn_Mmas>:$mmas,
    EnumParameter<Attn_Stationary>:$stationary,
    TypeParameter<"int64_t", "rows of a tile that one warp holds">:$rows,
    TypeParameter<"int64_t", "tokens of a tile that one warp holds">:$keys,
    TypeParameter<"int64_t", "query heads">:$heads,
    TypeParameter<"int64_t", "KV heads">:$kv_heads,
    TypeParameter<"int64_t", "features of a key">:$key_dim,
    TypeParameter<"int64_t", "features of a value">:$value_dim,
    TypeParameter<"int64_t", "features of a line of keys on the chip, with padding">:$key_tile,
    TypeParameter<"int64_t", "features of a line of values on the chip, with padding, or of a warp's slice of it">:$value_tile,
    TypeParameter<"::mlir::Type", "elements of queries">:$element,
    EnumParameter<Attn_FormTraits>:$traits,
    OptionalParameter<"::mlir::Type", "type of quantized integer values, whose zeros are summed apart; none: no such sum">:$codes,
    OptionalParameter<"::mlir::FloatAttr", "the value of a score of 1 in a state; none: the kernel's scale">:$unit);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Query heads per KV head.
    int64_t getGroup() const { return getHeads() / getKvHeads(); }
    /// Features of a key that are contracted: without the padding of tiles.
    int64_t getKeyFeatures() const { return ::llvm::alignTo(getKeyDim(), 16); }
    bool has(::mlir::attn::FormTraits trait) const { return bitEnumContainsAny(getTraits(), trait); }
    bool keepsTokens() const { return getStationary() == ::mlir::attn::Stationary::Tokens; }
  }];
  let genVerifyDecl = 1;
}

def Attn_Copy : I32EnumAttr<"Copy", "the content of a copy on the chip", [
    I32EnumAttrCase<"Query", 0, "query">,
    I32EnumAttrCase<"OutputGradient", 1, "output_grad">,
    I32EnumAttrCase<"Output", 2, "output">,
    I32EnumAttrCase<"Lse", 3, "lse">,
    I32EnumAttrCase<"Delta", 4, "delta">,
    I32EnumAttrCase<"Position", 5, "position">,
    I32EnumAttrCase<"Head", 6, "head">,
    I32EnumAttrCase<"Exchange", 7, "exchange">,
    I32EnumAttrCase<"Sums", 8, "sums">,
    I32EnumAttrCase<"Keys", 9, "keys">,
    I32EnumAttrCase<"Values", 10, "values">,
    I32EnumAttrCase<"KeyMeta", 11, "key_meta">,
    I32EnumAttrCase<"ValueMeta", 12, "value_meta">,
    I32EnumAttrCase<"KeyScale", 13, "key_scale">,
    I32EnumAttrCase<"ValueScale", 14, "value_scale">,
    I32EnumAttrCase<"QueryFactor", 15, "query_factor">,
    I32EnumAttrCase<"QueryRest", 16, "query_rest">,
    I32EnumAttrCase<"KeyRest", 17, "key_rest">,
    I32EnumAttrCase<"KeysBehind", 18, "keys_behind">,
    I32EnumAttrCase<"KeyRestBehind", 19, "key_rest_behind">,
    I32EnumAttrCase<"ValuesBehind", 20, "values_behind">,
    I32EnumAttrCase<"Units", 21, "units">]> {
  let cppNamespace = "::mlir::attn";
  let genSpecializedAttr = 0;
}
def Attn_CopyAttr : EnumAttr<Attn_Dialect, Attn_Copy, "copy"> {
  let assemblyFormat = "`<` $value `>`";
}

def Attn_RowsOp : Attn_Op<"rows", [AttrSizedOperandSegments, AllTypesMatch<["query", "result"]>]> {
  let summary = "the rows of a task";
  let description = [{
    Selects `count` packed rows of one KV head from `begin` on. Packed row `p` of KV head `h` is query row
    `p / G` and query head `h * G + p % G`, with G query heads per KV head. This warp has the rows from the
    task's row `first` on; the schedule gives their number. Lines past the last row repeat it, and their
    results are dropped. If four warps multiply as one, `group` is the first row of the four.

    With `part`, G is the number of heads of a part of the KV head's query heads, and `h` counts the parts of
    all KV heads. A group's heads may not fill a tile's lines evenly; such tiles have rows of a part that
    does.

    With `all_heads`, a packed row is the number of a query row and head in the order of memory, and `head` is
    ignored.

    `sink`, where there are sink logits: whether these rows count the sink; one share of a row's keys does.
    `scores`, in a kernel that may store scores: whether the scores of these rows are stored.

    ```mlir
    %rows = attn.rows %q [%begin for %count] head %head part %part of 1 ordinal %ordinal from %first : !q
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the query">:$query,
    Arg<I32, "first packed row">:$begin,
    Arg<I32, "number of packed rows">:$count,
    Arg<I32, "the KV head">:$head,
    Arg<I32, "its ordinal: its number among the heads in the order of their classes">:$ordinal,
    Arg<I32, "this warp's first row, counted from the task's first">:$first,
    Arg<Optional<I32>, "first row of this warp's warpgroup, counted alike">:$group,
    Arg<Optional<I32>, "the class of the KV head">:$headClass,
    Arg<Optional<I1>, "whether this warp's rows count the sink">:$sink,
    Arg<Optional<I1>, "whether scores of these rows are stored">:$scores,
    Arg<Optional<I32>, "index of the part of the KV head's query heads">:$part,
    OptionalAttr<I64Attr>:$part_heads,
    UnitAttr:$all_heads);
  let results = (outs Attn_Described<AnyRankedTensor, "these rows">:$result);
  let assemblyFormat = [{
    $query `[` $begin `for` $count `]` `head` $head (`part` $part^ `of` $part_heads)? `ordinal` $ordinal `from` $first
    (`group` $group^)?
    (`class` $headClass^)? (`sink` $sink^)? (`scores` $scores^)? (`all_heads` $all_heads^)? attr-dict `:` type($query)
  }];
}

def Attn_TokensOp : Attn_Op<"tokens", [AttrSizedOperandSegments, AllTypesMatch<["kv", "result"]>]> {
  let summary = "the tokens of a tile";
  let description = [{
    Selects tokens of an instance from `first` on; the schedule gives their number, and none is at `end` or
    past it. All rows of the task see the tokens in `[full_begin, full_end)`. The position of token 0 is
    `pos0`. `first_ordinal` is the first ordinal of the task's class of heads (see `attn.rows`).

    If the tasks of a plan are of tokens, `head` is the tokens' KV head. This warp has the tokens from
    `warp` on, counted from `first`, and its warpgroup, if any, has those from `group` on. `scores_behind`, in
    a kernel that may store scores, is the number of tokens of other regions whose scores precede.

    With `begin` the tile may begin before the first token that a row sees: tokens before `begin` are masked,
    and their page is not looked up.

    ```mlir
    %tile = attn.tokens %kv [%instance] from %first to %end full %b to %e pos0 %p first_ordinal %s : !cache
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_KVType, "the region">:$kv,
    Arg<I32, "the instance; negative: a list of the plan (page size 1)">:$instance,
    Arg<I32, "the tile's first token">:$first,
    Arg<I32, "end of the tokens that exist">:$end,
    Arg<I32, "begin of the tokens that every row sees">:$fullBegin,
    Arg<I32, "end of the tokens that every row sees">:$fullEnd,
    Arg<I32, "position of token 0">:$pos0,
    Arg<I32, "first ordinal of the task's class">:$firstOrdinal,
    Arg<Optional<I32>, "the tokens' KV head">:$head,
    Arg<Optional<I32>, "this warp's first token, counted from the tile's first">:$warp,
    Arg<Optional<I32>, "first token of this warp's warpgroup, counted alike">:$group,
    Arg<Optional<I64>, "number of tokens whose scores precede">:$scoresBehind,
    Arg<Optional<I32>, "first token that a row sees">:$begin);
  let results = (outs Attn_Described<Attn_KVType, "these tokens">:$result);
  let assemblyFormat = [{
    $kv `[` $instance `]` `from` $first `to` $end `full` $fullBegin `to` $fullEnd `pos0` $pos0 `first_ordinal` $firstOrdinal
    (`head` $head^)? (`warp` $warp^)? (`group` $group^)? (`scores_behind` $scoresBehind^)? (`begin` $begin^)? attr-dict
    `:` qualified(type($kv))
  }];
}

def Attn_StagedOp : Attn_Op<"staged", [Pure, AllTypesMatch<["part", "result"]>]> {
  let summary = "a part of a tensor, with its copies on the chip";
  let description = [{
    Each copy has a name, which says what it holds. Copies are shared tiles, or fragments of this warp's rows
    or tokens; a scale that all tokens of a task share is a number. If tokens have metadata by line, each
    tile of metadata is a copy. A staged part may be staged again, with further copies.

    ```mlir
    %t = attn.staged %tile in keys %k, values %v : !cache in !keys, !keys
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyType, "rows or tokens">:$part,
    Variadic<AnyType>:$copies,
    TypedArrayAttrBase<Attn_CopyAttr, "the name of each copy">:$names);
  let results = (outs Attn_Described<AnyType, "the part">:$result);
  let assemblyFormat = "$part `in` custom<Copies>($copies, $names) attr-dict `:` qualified(type($part)) `in` type($copies)";
  let builders = [OpBuilder<(ins "::mlir::Value":$part, "::llvm::ArrayRef<::mlir::attn::Copy>":$names,
                                 "::mlir::ValueRange":$copies)>];
  let extraClassDeclaration = [{
    /// All copies of this name, including those of an inner `attn.staged`.
    ::llvm::SmallVector<::mlir::Value> all(::mlir::attn::Copy name);
    /// The only copy of this name; null if there is none.
    ::mlir::Value copy(::mlir::attn::Copy name);
  }];
  let hasVerifier = 1;
}

def Attn_OneOfOp : Attn_Op<"one_of"> {
  let summary = "one of several updates of a state";
  let description = [{
    A tile of a kernel's loop belongs to one region. The update of the region with index `operand`, in the
    order of the text, changes the state; the others are never computed. All update the same state and differ
    only in their tokens and their visibility, so their code may be shared.

    ```mlir
    %u0 = attn.update %s, %rows, %tile0 see all scale 0.08838835 : !q, !dense -> !state
    %u1 = attn.update %s, %rows, %tile1 see causal scale 0.08838835 : !q, !cache -> !state
    %t = attn.one_of %operand of %u0, %u1 : !state, !state -> !state
    ```
  }];
  let arguments = (ins
    Arg<I32, "the index of the region">:$operand,
    Variadic<Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType]>, "the updated states, or gradients">>:$states);
  let results = (outs Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType]>, "the state of that update">:$result);
  let assemblyFormat = "$operand `of` $states attr-dict `:` type($states) `->` qualified(type($result))";
  let hasVerifier = 1;
}

def Attn_PartsOp : Attn_Op<"parts"> {
  let summary = "the union of the states that the attend kernels have stored for each row";
  let description = [{
    The merge kernel finishes this state. Its rows and their states are lists of the plan. With `by_ordinal`
    the plan numbers heads by their ordinals (see `attn.rows`).

    ```mlir
    %s = attn.parts %q kv_heads 8 : !q -> !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the query rows whose state this is">:$query,
    I64Attr:$kv_heads,
    UnitAttr:$by_ordinal);
  let results = (outs Attn_Described<Attn_StateType, "the state">:$state);
  let assemblyFormat = [{
    $query `kv_heads` $kv_heads (`by_ordinal` $by_ordinal^)? attr-dict `:` type($query) `->` qualified(type($state))
  }];
}

def Attn_StoredOp : Attn_Op<"stored"> {
  let summary = "the union of up to 32 stored states";
  let description = [{
    `number`, which differs between lanes, is the index of this lane's state, and `lse` what was stored for it; lanes from
    `count` on have none.

    ```mlir
    %s = attn.stored [%number] lse %lse count %count : !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Arg<I32, "index of a stored state, different in each lane">:$number,
    Arg<F32, "LSE of that state">:$lse,
    Arg<I32, "number of states; with 32 or more every lane has one">:$count);
  let results = (outs Attn_Described<Attn_StateType, "the union of the states">:$state);
  let assemblyFormat = "`[` $number `]` `lse` $lse `count` $count attr-dict `:` qualified(type($state))";
}

def Attn_WarpsOp : Attn_Op<"warps", [AllTypesMatch<["part", "state"]>]> {
  let summary = "the union of the states of a block's warps for the same rows";
  let description = [{
    Afterwards every warp holds a share of the accumulator's columns.

    ```mlir
    %all = attn.warps %s : !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins Attn_Described<Attn_StateType, "this warp's state">:$part);
  let results = (outs Attn_Described<Attn_StateType, "the union of all">:$state);
  let assemblyFormat = "$part attr-dict `:` qualified(type($state))";
}

def Attn_NoPartsOp : Attn_Op<"no_parts", [Pure]> {
  let summary = "the results of rows before any part: outputs of zero";
  let description = [{
    A kernel whose tasks fold their parts begins with it.

    ```mlir
    %o = attn.no_parts : !q
    ```
  }];
  let results = (outs Attn_Described<AnyRankedTensor, "the output">:$output);
  let assemblyFormat = "attr-dict `:` type($output)";
}

def Attn_FoldOp : Attn_Op<"fold", [AttrSizedOperandSegments, AllTypesMatch<["output", "result"]>]> {
  let summary = "adds a part's results to those of the parts before it, or of the sinks to those of all parts";
  let description = [{
    Two finished states are folded by their outputs and LSEs, in f32 and in this order: the results of the
    parts `before`, then `output`. `attn.keep` has stored the outputs before from number `part` on; `before`
    has their LSEs. If `stored` is false, there is no part before. After all parts a fold without `part` makes
    the rows' results. With `sinks`, a sink is then a part with an output of zero. The kernel that merges
    parts does the same operations (`RowFold.h`).

    ```mlir
    %r = attn.fold %o of %rows part %part after %before if %stored : !q of !q after !q

    %r, %lse = attn.fold %o of %rows sinks %sinks : !q of !q sinks tensor<32xf32> lse !lse
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the output of a part, or of all parts">:$output,
    Attn_Described<AnyRankedTensor, "the rows">:$rows,
    Arg<Optional<I32>, "number of the rows' first stored state">:$part,
    Optional<Attn_Described<AnyRankedTensor, "the results of the parts before">>:$before,
    Arg<Optional<I1>, "whether there is one">:$stored,
    Optional<Attn_Described<AnyRankedTensor, "the logit of each head's sink">>:$sinks);
  let results = (outs Attn_Described<AnyRankedTensor, "the output of these parts and those before">:$result,
                      Optional<Attn_Described<AnyRankedTensor, "their LSE">>:$lse);
  let assemblyFormat = [{
    $output `of` $rows (`part` $part^ `after` $before `if` $stored)? (`sinks` $sinks^)? attr-dict
    `:` type($output) `of` type($rows) (`after` type($before)^)? (`sinks` type($sinks)^)? (`lse` type($lse)^)?
  }];
}

def Attn_KeepOp : Attn_Op<"keep"> {
  let summary = "stores the output of the parts so far, for the fold of the next part";
  let description = [{
    ```mlir
    attn.keep %o of %rows part %part : !q of !q
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the output">:$output,
    Attn_Described<AnyRankedTensor, "the rows">:$rows,
    Arg<I32, "number of the rows' first stored state">:$part);
  let assemblyFormat = "$output `of` $rows `part` $part attr-dict `:` type($output) `of` type($rows)";
}

def Attn_WriteOp : Attn_Op<"write", [AttrSizedOperandSegments]> {
  let summary = "writes a finished state: the output and LSE of rows, or a state to be merged with others";
  let description = [{
    With `rows`, writes this warp's rows; as states from number `part` on, unless `part` is negative. With
    `row`, writes a single row, which a warp finishes alone, to that row of the output. With `gate`, outputs are
    multiplied by its sigmoid, and with `output_scale` they are divided by it. With `output_scales` they are
    divided by a scale of each row and head, which is made of them and written beside. States are neither.

    ```mlir
    attn.write %o, %lse of %rows part %part : !q, !lse of !q
    attn.write %o, %lse to %row gate %gate : !q, !lse gate !q
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the output">:$output,
    Optional<Attn_Described<AnyRankedTensor, "the LSE">>:$lse,
    Optional<Attn_Described<AnyRankedTensor, "the rows">>:$rows,
    Arg<Optional<I32>, "number of the rows' first state, or negative">:$part,
    Arg<Optional<I64>, "index of a row and head of the output">:$row,
    Optional<Attn_Described<AnyRankedTensor, "the gate of the output">>:$gate,
    Optional<Attn_Described<AnyRankedTensor, "the scale of an output of f8E4M3FN, `[1]`, f32">>:$output_scale,
    UnitAttr:$output_scales);
  let assemblyFormat = [{
    $output (`,` $lse^)? (`of` $rows^ `part` $part)? (`to` $row^)? (`gate` $gate^)?
    (`output_scale` $output_scale^)? (`output_scales` $output_scales^)? attr-dict
    `:` type($output) (`,` type($lse)^)? (`of` type($rows)^)? (`gate` type($gate)^)? (`output_scale` type($output_scale)^)?
  }];
  let hasVerifier = 1;
}

#endif

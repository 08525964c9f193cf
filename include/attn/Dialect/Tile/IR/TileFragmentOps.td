//===- TileFragmentOps.td - Elements of fragments -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEFRAGMENTOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEFRAGMENTOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_SplatOp : Tile_Op<"splat", [Pure]> {
  let summary = "a fragment whose elements are all the same scalar";
  let description = [{ Operands of MMAs (`lhs`, `rhs`) take scalars of 16 bits. }];
  let arguments = (ins Arg<AnyType, "the scalar">:$value);
  let results = (outs Res<Tile_FragmentType, "the fragment">:$fragment);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_UndefinedOp : Tile_Op<"undefined", [Pure]> {
  let summary = "a fragment without values, for a loop whose first iteration does not use what it carries";
  let results = (outs Res<Tile_FragmentType, "the fragment">:$fragment);
  let assemblyFormat = "attr-dict `:` type($fragment)";
}

def Tile_CoordinatesOp : Tile_Op<"coordinates", [Pure]> {
  let summary = "element i of a one-axis fragment is `start + i`";
  let arguments = (ins Arg<I32, "value of element 0">:$start);
  let results = (outs Res<Tile_FragmentType, "one axis of i32">:$fragment);
  let assemblyFormat = "$start attr-dict `:` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LaneCoordinatesOp : Tile_Op<"lane_coordinates", [Pure]> {
  let summary = "coordinates of a lane's elements along an axis, as a first coordinate and constant offsets";
  let description = [{
    Element i of a lane has the coordinate `first + offsets[i]`; `first` differs from lane to lane, the
    offsets are constants of the layout. Bounds are moved by `first` once and then compared with constants for
    every element, so masks cost one instruction per element and end.
  }];
  let results = (outs
    Res<I32, "the lane's first coordinate">:$first,
    Res<Tile_FragmentType, "one axis of i32">:$offsets);
  let assemblyFormat = "attr-dict `:` type($offsets)";
  let hasVerifier = 1;
}

def Tile_MapOp : Tile_Op<"map", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "applies a scalar function to every element";
  let description = [{
    Operands with fewer axes than the results are broadcast along the axes they lack. The region takes one scalar per
    operand, yields one per result, and may use uniform values from outside.
  }];
  let arguments = (ins Arg<Variadic<Tile_FragmentType>, "the operands of the function">:$inputs);
  let results = (outs Res<Variadic<Tile_FragmentType>, "its values, fragments of one shape">:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$inputs custom<Body>($body) attr-dict `:` type($inputs) `->` type($results)";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_MaskOp : Tile_Op<"mask", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "sets invisible scores to minus infinity";
  let description = [{
    The region says, for one element, whether it is visible. `partial` = false promises that all elements are:
    `--tile-skip-full-masks` then branches around the mask, so that full tiles execute no mask code.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32, any axes">:$scores,
    Arg<Variadic<Tile_FragmentType>, "inputs of the visibility, broadcast as in `tile.map`">:$inputs,
    Arg<I1, "whether some element may be invisible">:$partial);
  let results = (outs Res<Tile_FragmentType, "the scores, -inf where invisible">:$result);
  let regions = (region SizedRegion<1>:$visible);
  let assemblyFormat = [{
    $scores `if` $partial `where` $inputs custom<Body>($visible) attr-dict `:` type($scores) `,` type($inputs)
    `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_YieldOp
    : Tile_Op<"yield", [Pure, Terminator,
                        ParentOneOf<["AheadOp", "AnyLineOp", "GatherOp", "LoadFeaturesOp", "LoadLinesOp", "LoadSumsOp", "LoadVectorOp",
                                     "LookupBoxesOp", "LookupOp", "MapOp", "MaskOp", "ScatterOp", "StoreScoresOp",
                                     "StoreOp"]>]> {
  let summary = "ends the region of a tile operation with its value, or a map's with its values";
  let arguments = (ins Arg<Variadic<AnyType>, "the values">:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "combines the elements along the axis that the result lacks";
  let description = [{
    Along columns, lanes of a quad exchange values, along rows lanes of different quads: two exchanges per
    row, or three per column. A result of `partial` type holds each lane's own share (no communication);
    `tile.complete` adds the shares. Reassociates.
  }];
  let arguments = (ins
    Arg<Tile_Combine, "how elements are combined">:$kind,
    Arg<Tile_FragmentType, "f32, two axes">:$source);
  let results = (outs Res<Tile_FragmentType, "one axis of the source">:$result);
  let assemblyFormat = "$kind $source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_CompleteOp : Tile_Op<"complete", [Pure]> {
  let summary = "adds the lanes' shares of a partial fragment";
  let arguments = (ins Arg<Tile_FragmentType, "f32 shares">:$source);
  let results = (outs Res<Tile_FragmentType, "the sums, equal in all lanes of a quad, or in all quads">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_AnyOp : Tile_Op<"any", [Pure]> {
  let summary = "whether an element is true in any lane; uniform over the warp";
  let arguments = (ins Arg<Tile_FragmentType, "one axis of i1">:$source);
  let results = (outs Res<I1, "equal in all lanes">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def Tile_AnyLineOp : Tile_Op<"any_line", [MemoryEffects<[MemRead]>, SingleBlock]> {
  let summary = "whether a condition holds for the number of any line of a shared tile; uniform over the warp";
  let description = [{
    Each lane reads other lines, so a warp reads each number once. The region takes the number of a line, and may
    use uniform values from outside.
  }];
  let arguments = (ins Arg<Tile_SharedType, "a tile of one column of 32 bits, 32 lines or a multiple">:$tile);
  let results = (outs Res<I1, "equal in all lanes">:$result);
  let regions = (region SizedRegion<1>:$condition);
  let assemblyFormat = "$tile custom<Body>($condition) attr-dict `:` type($tile)";
  let extraClassDeclaration = [{
    /// Whether the lanes of a warp can share the lines of a tile evenly.
    static bool mayCheck(SharedType tile);
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

#endif

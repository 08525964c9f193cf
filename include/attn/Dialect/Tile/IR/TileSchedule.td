#ifndef ATTN_DIALECT_TILE_IR_TILESCHEDULE_TD
#define ATTN_DIALECT_TILE_IR_TILESCHEDULE_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Tile_ScheduleKind : I32EnumAttr<"ScheduleKind", "the family of instructions a kernel is built on", [
    I32EnumAttrCase<"Mma", 0, "mma">,
    I32EnumAttrCase<"Wgmma", 1, "wgmma">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_ScheduleAttr : AttrDef<Tile_Dialect, "Schedule"> {
  let mnemonic = "schedule";
  let summary = "how one kernel is cut into tiles, warps and stages";
  let description = [{
    `rows` packed query rows and `keys` tokens per tile. With `split_keys` every warp holds all rows and a slice of
    the keys, copies its own slice and keeps a partial softmax of its own, merged when the task ends (decode).
    Without it every warp holds 16 rows and reads the block's common tile (prefill). `stages` tiles are in flight.
    `blocks` of them share a multiprocessor.
    Under `wgmma` the warps counted are those that compute, four to a warpgroup; four more only copy.
    `query_in_registers` keeps the query fragments in registers over the whole loop.

    A function may carry its own list as `tile.schedules = [#tile.schedule<...>, ...]`; otherwise
    `--attn-choose-schedule` picks one per shape from the target's shared memory.
  }];
  let parameters = (ins "ScheduleKind":$kind, "int64_t":$rows, "int64_t":$keys, "int64_t":$warps,
                        "int64_t":$stages, "int64_t":$blocks, "bool":$splitKeys, "bool":$queryInRegisters);
  let assemblyFormat = [{
    `<` $kind `,` `rows` `=` $rows `,` `keys` `=` $keys `,` `warps` `=` $warps `,` `stages` `=` $stages `,`
    `blocks` `=` $blocks `,`
    `split_keys` `=` $splitKeys `,` `query_in_registers` `=` $queryInRegisters `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Packed rows that one warp holds, and keys of a tile that one warp scores.
    int64_t getWarpRows() const { return getSplitKeys() ? getRows() : getRows() / getWarps(); }
    /// Warps that only copy: the first ones of a block under `wgmma`.
    static constexpr int64_t producerWarps = 4;
    /// Warps that share a copy of this scope.
    int64_t getCopyWarps(Scope scope) const {
      return scope == Scope::Block ? getWarps() : scope == Scope::Producers ? producerWarps : 1;
    }
    /// Tiles of queries in shared memory. Under `wgmma` the next task's come while this one is computed, where 227 KiB
    /// (what a block of sm_90 may have, less a KiB for barriers) hold two.
    int64_t getQueryTiles(int64_t keyDim, int64_t valueDim) const {
      int64_t queries = getRows() * keyDim * 2, rings = getStages() * getKeys() * 2 * (keyDim + valueDim);
      return getKind() == ScheduleKind::Wgmma && 2 * queries + rings <= 226 * 1024 ? 2 : 1;
    }
    int64_t getWarpKeys() const { return getSplitKeys() ? getKeys() / getWarps() : getKeys(); }
  }];
}

def Tile_ParameterKind : I32EnumAttr<"ParameterKind", "what a kernel's parameter is", [
    I32EnumAttrCase<"Buffer", 0, "buffer">,
    I32EnumAttrCase<"Dim", 1, "dim">,
    I32EnumAttrCase<"End", 2, "end">,
    I32EnumAttrCase<"Scale", 3, "scale">,
    I32EnumAttrCase<"Map", 4, "map">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_ParameterAttr : AttrDef<Tile_Dialect, "Parameter"> {
  let mnemonic = "parameter";
  let summary = "where the launch finds the value of a kernel's parameter";
  let description = [{
    A tensor by its name, a dimension by its name, an end of a visibility by its index, the scale, or a tensor map
    by its name in the kernel's `tile.tensor_maps`. The manifest lists a kernel's parameters in order.
  }];
  let parameters = (ins "ParameterKind":$kind, StringRefParameter<"name of the tensor or dimension", "\"\"">:$name,
                        DefaultValuedParameter<"int64_t", "0">:$index);
  let assemblyFormat = "`<` $kind (`,` $name^)? (`index` $index^)? `>`";
}

def Tile_TensorMapAttr : AttrDef<Tile_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "a tensor as bulk copies see it: axes of bytes, a box, a swizzle";
  let description = [{
    Axis i, counted from the innermost, has `extents[i]` elements times the product of the run-time dimensions that
    `dims[i]` names; `strides[i]` bytes lie between its elements (the innermost are adjacent: its stride is the
    element's size). A copy moves a `box`, the innermost axis side by side, into shared memory with the swizzle of
    that many bytes. The launch encodes it for the device.
  }];
  let parameters = (ins StringRefParameter<"name of the map">:$name, StringRefParameter<"the tensor">:$buffer,
                        "Type":$element, "DenseI64ArrayAttr":$extents, "ArrayAttr":$dims,
                        "DenseI64ArrayAttr":$strides, "DenseI64ArrayAttr":$box, "int64_t":$swizzle);
  let assemblyFormat = [{
    `<` $name `of` $buffer `,` $element `,` `extents` `=` $extents `,` `dims` `=` $dims `,` `strides` `=` $strides `,`
    `box` `=` $box `,` `swizzle` `=` $swizzle `>`
  }];
  let genVerifyDecl = 1;
}

#endif

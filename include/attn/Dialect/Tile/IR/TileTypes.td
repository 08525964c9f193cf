//===- TileTypes.td - Tiles, rings and fragments -----------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILETYPES_TD
#define ATTN_DIALECT_TILE_IR_TILETYPES_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Tile_Axis : I32EnumAttr<"Axis", "an axis of attention", [
    I32EnumAttrCase<"Query", 0, "query">,
    I32EnumAttrCase<"Key", 1, "key">,
    I32EnumAttrCase<"Feature", 2, "feature">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_Layout : I32EnumAttr<"Layout", "how a fragment is spread over the lanes of a warp", [
    I32EnumAttrCase<"Unassigned", 0, "unassigned">,
    I32EnumAttrCase<"Acc", 1, "acc">,
    I32EnumAttrCase<"Lhs", 2, "lhs">,
    I32EnumAttrCase<"Row", 3, "row">,
    I32EnumAttrCase<"Col", 4, "col">,
    I32EnumAttrCase<"Rhs", 5, "rhs">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_Scope : I32EnumAttr<"Scope", "which threads take part", [
    I32EnumAttrCase<"Warp", 0, "warp">,
    I32EnumAttrCase<"Block", 1, "block">,
    I32EnumAttrCase<"Producers", 2, "producers">]> {
  let cppNamespace = "::mlir::tile";
}

def Tile_Combine : I32EnumAttr<"Combine", "the operation of a reduction", [
    I32EnumAttrCase<"Add", 0, "add">,
    I32EnumAttrCase<"Max", 1, "max">]> {
  let cppNamespace = "::mlir::tile";
}

class Tile_Type<string name, string typeMnemonic> : TypeDef<Tile_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Tile_BufferType : Tile_Type<"Buffer", "buffer"> {
  let summary = "a tensor in global memory, as a sequence of elements";
  let description = [{
    `element` is an integer or a float of 8 to 64 bits, or an integer of 2 or 4; elements are adjacent, those
    of less than a byte from its low end on.
  }];
  let parameters = (ins "Type":$element);
  let assemblyFormat = "`<` $element `>`";
  let genVerifyDecl = 1;
}

def Tile_SharedType : Tile_Type<"Shared", "shared"> {
  let summary = "a tile in shared memory";
  let description = [{
    `rows` lines along one axis, each of `cols` elements along another. A swizzled tile is stored as *panels* of at
    most 128 bytes per line: as many panels of 128 bytes as fit, then one of 64 and one of 32 where the rest asks
    for them (every feature size that is a multiple of 16 is such a sum). Inside a panel of W bytes the 16-byte
    chunk c of line r lies at `r*W + 16*(c ^ s(r))` with s(r) = r % 8 for W = 128, (r/2) % 4 for 64 and (r/4) % 2
    for 32: the hardware's own three swizzles, so that eight consecutive lines of one chunk, and one line's eight
    chunks, both touch all 32 banks once.

    Quantized tiles, whose elements have 8 bits or less, are read in runs (see `!tile.fragment`), by lanes of
    several lines at once. Their swizzles move the 16-byte chunks of eight lines to positions where all those
    reads touch all banks; lines of 16 bytes or less need none.

    With `boxes n` the tile is cut into consecutive boxes of n lines, each with all its panels: a page of a
    cache then arrives in one piece. Operations that read along lines (transposed operands of wgmma) accept
    such tiles.
  }];
  let parameters = (ins "Axis":$rowAxis, "int64_t":$rows, "Axis":$colAxis, "int64_t":$cols, "Type":$element,
                        DefaultValuedParameter<"bool", "false">:$swizzled,
                        DefaultValuedParameter<"int64_t", "0">:$boxes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    int64_t getBytes() const;
    int64_t getLineBytes() const;
    /// Lines of a box; all lines if the tile is not cut.
    int64_t getBoxLines() const { return getBoxes() ? getBoxes() : getRows(); }
    /// A run of chunks that is stored contiguously. It has `width` bytes per line, starts at byte `offset` of
    /// a box, and holds the line's chunks from `chunk` on.
    struct Panel { int64_t width, offset, chunk; };
    SmallVector<Panel> getPanels() const;
    /// The index of the panel that holds this chunk of a line.
    size_t getPanelOf(int64_t chunk) const;
    /// Whether elements are quantized: of 8 bits or less.
    bool holdsCodes() const { return getElement().getIntOrFloatBitWidth() <= 8; }
  }];
}

def Tile_RingType : Tile_Type<"Ring", "ring"> {
  let summary = "several shared-memory tiles used in turn by a pipeline of copies";
  let description = [{ `stages` consecutive tiles. }];
  let parameters = (ins "int64_t":$stages, "SharedType":$tile);
  let assemblyFormat = "`<` $stages `,` $tile `>`";
  let genVerifyDecl = 1;
}

def Tile_ScratchType : Tile_Type<"Scratch", "scratch"> {
  let summary = "shared memory without a shape, for exchanges between warps";
  let parameters = (ins "int64_t":$bytes);
  let assemblyFormat = "`<` $bytes `>`";
  let genVerifyDecl = 1;
}

def Tile_BarriersType : Tile_Type<"Barriers", "barriers"> {
  let summary = "barriers in shared memory (mbarrier), eight bytes each";
  let parameters = (ins "int64_t":$count);
  let assemblyFormat = "`<` $count `>`";
  let genVerifyDecl = 1;
}

def Tile_TensorMapType : Tile_Type<"TensorMap", "tensor_map"> {
  let summary = "the descriptor of a tensor in global memory for TMA";
  let description = [{ Has `rank` axes, the innermost first; `#tile.tensor_map` defines them. A parameter of the kernel. }];
  let parameters = (ins "int64_t":$rank);
  let assemblyFormat = "`<` $rank `>`";
  let genVerifyDecl = 1;
}

def Tile_FragmentType : Tile_Type<"Fragment", "fragment"> {
  let summary = "values in the registers of one warp";
  let description = [{
    One or two axes with their sizes, an element type and a layout. With g = lane / 4 and q = lane % 4:

    | layout | lane holds, in register i |
    |--------|---------------------------|
    | `acc`  | per 16x8 block: row g + 8*(i/2), column 2q + i%2 (the tensor cores' C and D) |
    | `lhs`  | per block of 16 lines of 32 bytes: row g + 8*(i%2), bytes 4q + 16*(i/2) and the next three (A) |
    | `rhs`  | per 8x16 block: 32-bit register i holds row g, columns 2q + 8*i and the next (B); quantized: one register holds all four, a byte each |
    | `row`  | per 16 rows: row g + 8*i; the same value in the four lanes of a quad |
    | `col`  | per 8 columns: column 2q + i; the same value in the eight quads |

    A register of `lhs` has 32 bits. It holds the elements of a line in these four bytes, the first lowest:

    | bits of an element | block | register i holds columns |
    |---|---|---|
    | 32 | 16x8 (m16n8k8)   | q + 4*(i/2) |
    | 16 | 16x16 (m16n8k16) | 2q + 8*(i/2) and the next |
    | 8  | 16x32 (m16n8k32) | 4q + 16*(i/2) and the next three |

    `rhs` is for elements of 16 bits, and for quantized elements of 8 bits or less that become such: a lane
    holds the four that it will multiply. (Where few rows of queries are the right operand, quantized elements
    are the left one in this layout, too.)

    The order of features is free: sums over features have any order, and results may keep theirs. With
    `runs n` features lie in spans of n (the remaining ones in spans of n/2 and then of n/4), and a lane holds
    neighbours, which one load reads from memory:

    | layout, features | lane holds of each span of n |
    |---|---|
    | `lhs`, columns | features n/4*q and so on, n/4 of them: the columns 2q, 2q + 1, 2q + 8, 2q + 9 of n/16 blocks |
    | `rhs`, columns | as for `lhs` |
    | `rhs`, rows    | features n/8*g and so on, n/8 of them: row g of n/8 blocks |
    | `acc`, columns | features n/8*c of column c, and so on: column c of n/8 blocks |
    | `acc`, rows    | those of `rhs`, two blocks of eight rows side by side in one of sixteen |

    Two columns that share a register are neighbours in the run. With `by d` they lie d apart, in groups of 2d
    features: one mask extracts them from a register of quantized elements of 4 or 2 bits. Quantized elements
    in such layouts are registers as memory holds them: each the next 32 bits (or as many as the run has) of a
    lane's run. If features are rows, the registers of the four columns follow each other.

    In the other layouts a register holds one element, of any width. Blocks follow each other along columns, then along
    rows.

    The first axis of a two-axis fragment lies along rows. An MMA keeps the first axis of `rhs` and contracts
    the second. `partial` marks a one-axis fragment whose value is a pending sum over lanes: over the four
    lanes of a quad if it lies along rows, over the eight quads if it lies along columns. Row sums of
    probabilities stay partial until the last tile.
  }];
  let parameters = (ins ArrayRefParameter<"Axis">:$axes, ArrayRefParameter<"int64_t">:$sizes, "Type":$element,
                        DefaultValuedParameter<"Layout", "Layout::Unassigned">:$layout,
                        DefaultValuedParameter<"bool", "false">:$partial,
                        DefaultValuedParameter<"FeatureOrder", "FeatureOrder()">:$order);
  let builders = [TypeBuilder<(ins "ArrayRef<Axis>":$axes, "ArrayRef<int64_t>":$sizes, "Type":$element,
                                   "Layout":$layout, "bool":$partial),
                              "return $_get($_ctxt, axes, sizes, element, layout, partial, FeatureOrder());">];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    int64_t getRank() const { return getSizes().size(); }
    /// Registers that one lane uses.
    int64_t getRegisters() const;
    /// Columns of a block in layout `lhs`: as many elements as 32 bytes hold.
    int64_t getLhsColumns() const { return 256 / getElement().getIntOrFloatBitWidth(); }
    /// Returns null, with an error, if the sizes do not allow the layout.
    FragmentType withLayout(Layout layout, FeatureOrder order, function_ref<InFlightDiagnostic()> emitError) const;
    /// The position of the axis of features, -1 if there is none.
    int64_t getFeatureAxis() const;
    /// The spans into which an order divides features.
    struct Span { int64_t first, size; };
    SmallVector<Span> getSpans() const;
    /// Registers of quantized elements in runs.
    int64_t getWords() const;
    FragmentType withElement(Type element) const;
  }];
}

def Tile_MemoryType : AnyTypeOf<[Tile_SharedType, Tile_RingType, Tile_ScratchType, Tile_BarriersType],
                                    "shared memory">;

#endif

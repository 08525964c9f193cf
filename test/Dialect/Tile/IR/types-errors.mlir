// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{expected an axis (query, key or feature), got 'column'}}
func.func private @axis(!tile.shared<column 16, feature 64, bf16>)

// -----

// expected-error @+1 {{expected two different axes, got 'key' twice}}
func.func private @axes(!tile.shared<key 16, key 64, bf16>)

// -----

// expected-error @+1 {{expected 1 to 65536 along key, got 0}}
func.func private @rows(!tile.shared<key 0, feature 64, bf16>)

// -----

// expected-error @+1 {{expected 1 to 65536 along feature, got 65537}}
func.func private @cols(!tile.shared<key 16, feature 65537, bf16>)

// -----

// expected-error @+1 {{expected an element type of 8, 16, 32 or 64 bits, i4, i2 or f4E2M1FN, got 'index'}}
func.func private @shared_element(!tile.shared<key 16, feature 64, index>)

// -----

// expected-error @+1 {{expected the lines of a swizzled tile to be a multiple of 32 bytes, got 80}}
func.func private @swizzle(!tile.shared<key 16, feature 40, bf16, swizzled>)

// -----

// expected-error @+1 {{expected an element type of 8, 16, 32 or 64 bits, i4, i2 or f4E2M1FN, got 'i1'}}
func.func private @buffer(!tile.buffer<i1>)

// -----

// expected-error @+1 {{expected 1 to 8 stages, got 9}}
func.func private @ring(!tile.ring<9, <key 16, feature 64, bf16>>)

// -----

// expected-error @+1 {{expected at least one byte, got 0}}
func.func private @scratch(!tile.scratch<0>)

// -----

// expected-error @+1 {{expected one or two axes with a size each}}
func.func private @rank(!tile.fragment<[query 16, key 16, feature 16], f32>)

// -----

// expected-error @+1 {{expected two different axes, got 'query' twice}}
func.func private @fragment_axes(!tile.fragment<[query 16, query 16], f32>)

// -----

// expected-error @+1 {{expected 1 to 65536 along query, got -16}}
func.func private @fragment_size(!tile.fragment<[query -16], f32>)

// -----

// expected-error @+1 {{expected elements that are integers or floats, got 'index'}}
func.func private @fragment_element(!tile.fragment<[query 16], index>)

// -----

// expected-error @+1 {{expected a layout, 'runs' or 'partial', got 'diagonal'}}
func.func private @layout(!tile.fragment<[query 16], f32, diagonal>)

// -----

// expected-error @+1 {{layout 'acc' needs two axes}}
func.func private @acc(!tile.fragment<[query 16], f32, acc>)

// -----

// expected-error @+1 {{layout 'row' needs one axis}}
func.func private @row(!tile.fragment<[query 16, key 16], f32, row>)

// -----

// expected-error @+1 {{expected a multiple of 16 along query, got 8}}
func.func private @row_size(!tile.fragment<[query 8], f32, row>)

// -----

// expected-error @+1 {{expected a multiple of 8 along key, got 4}}
func.func private @col_size(!tile.fragment<[key 4], f32, col>)

// -----

// expected-error @+1 {{expected a multiple of 8 along key, got 12}}
func.func private @acc_size(!tile.fragment<[query 16, key 12], f32, acc>)

// -----

// expected-error @+1 {{expected a multiple of 16 along key, got 24}}
func.func private @lhs_size(!tile.fragment<[query 16, key 24], bf16, lhs>)

// -----

// expected-error @+1 {{expected a multiple of 32 along key, got 48}}
func.func private @lhs_bytes(!tile.fragment<[query 16, key 48], i8, lhs>)

// -----

// expected-error @+1 {{expected a multiple of 8 along key, got 12}}
func.func private @lhs_words(!tile.fragment<[query 16, key 12], f32, lhs>)

// -----

// expected-error @+1 {{expected elements of 8, 16 or 32 bits in layout 'lhs', got 'f64'}}
func.func private @lhs_element(!tile.fragment<[query 16, key 32], f64, lhs>)

// -----

// expected-error @+1 {{expected a multiple of 8 along key, got 12}}
func.func private @rhs_kept(!tile.fragment<[key 12, feature 16], bf16, rhs>)

// -----

// expected-error @+1 {{expected a multiple of 16 along feature, got 24}}
func.func private @rhs_contracted(!tile.fragment<[key 8, feature 24], bf16, rhs>)

// -----

// expected-error @+1 {{expected elements of 2, 4, 8 or 16 bits in layout 'rhs', got 'f32'}}
func.func private @rhs_element(!tile.fragment<[key 8, feature 16], f32, rhs>)

// -----

// expected-error @+1 {{only a one-axis fragment can be partial}}
func.func private @partial(!tile.fragment<[query 16, key 16], f32, acc, partial>)

// -----

// expected-error @+1 {{expected 1 to 64 barriers, got 0}}
func.func private @barriers(!tile.barriers<0>)

// -----

// expected-error @+1 {{expected runs of a power of two of features, 16 to 1024, got 0}}
func.func private @f(!tile.fragment<[query 16, feature 64], f32, acc, runs 0 by 4>)

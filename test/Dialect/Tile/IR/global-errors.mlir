// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @f(%b: !tile.buffer<i32>, %i: i64) {
  // expected-error @+1 {{expected an element of the buffer, 'i32', got 'f32'}}
  %0 = tile.read %b[%i] : <i32> -> f32
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %i: i64, %x: i32) {
  // expected-error @+1 {{expected 'bf16' or an f32 that is rounded to it, got 'i32'}}
  tile.write %x to %b[%i] : i32 -> <bf16>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %i: i32) {
  // expected-error @+1 {{expected a buffer of i32, got '!tile.buffer<f32>'}}
  %0 = tile.record %b[%i] : <f32> -> i32
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected 1 to 32 fields, got 33}}
  %0:33 = tile.record %b[%i] : <i32> -> i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %i: i32) {
  // expected-error @+1 {{expected a table of i32, got '!tile.buffer<f32>'}}
  %0 = tile.paged_slot %b[%i, %i] columns %i page 16 : <f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>, %i: i32) {
  // expected-error @+1 {{expected the page to hold 1 to 8 or a multiple of 16 up to 2048 tokens, got 24; nearest legal: 16 or 32}}
  %0 = tile.paged_slot %b[%i, %i] columns %i page 24 : <i32>
  return
}

// -----

func.func @f(%i: i32, %t: !tile.scratch<32>) {
  // expected-error @+1 {{expected scratch of 64 bytes, got 32}}
  %0:2 = tile.scan %i in %t warps 16 : i32 in !tile.scratch<32> -> i32 total i32
  return
}

// -----

func.func @f(%i: i32, %t: !tile.scratch<256>) {
  // expected-error @+1 {{expected at most 32 warps, got 33}}
  %0:2 = tile.scan %i in %t warps 33 : i32 in !tile.scratch<256> -> i32 total i32
  return
}

// -----

func.func @f(%b: !tile.buffer<i32>) {
  // expected-error @+1 {{expected one axis of the buffer's elements, 'i32', got '!tile.fragment<[query 16], f32, row>'}}
  %0 = tile.load_vector %b (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : <i32> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>) {
  // expected-error @+1 {{expected the region to yield 'i64', got 'i16'}}
  %0 = tile.load_vector %b (%line: i32) {
    %index = arith.trunci %line : i32 to i16
    tile.yield %index : i16
  } : <f32> -> <[query 16], f32, row>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row, partial>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected a complete fragment of f32, got}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row, partial> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, key 16], f32, acc>, %b: !tile.buffer<i32>, %n: i32, %u: f32) {
  // expected-error @+1 {{expected a buffer of i16, got '!tile.buffer<i32>'}}
  tile.store_scores %f times %u to %b tokens %n group 4 apart 1 (%key: i32) {
    tile.yield %key : i32
  } : !tile.fragment<[query 16, key 16], f32, acc> -> !tile.buffer<i32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 16], f32, acc>, %b: !tile.buffer<i16>, %n: i32, %u: f32) {
  // expected-error @+1 {{expected queries and keys, got}}
  tile.store_scores %f times %u to %b tokens %n group 4 apart 1 (%key: i32) {
    tile.yield %key : i32
  } : !tile.fragment<[query 16, feature 16], f32, acc> -> !tile.buffer<i16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[key 16, query 8], f32, acc>, %b: !tile.buffer<i16>, %n: i32, %u: f32) {
  // expected-error @+1 {{expected a group of 1 to 8 heads, got 9}}
  tile.store_scores %f times %u to %b tokens %n group 9 apart 1 (%key: i32) {
    tile.yield %key : i32
  } : !tile.fragment<[key 16, query 8], f32, acc> -> !tile.buffer<i16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[key 16], f32, row>, %b: !tile.buffer<i16>, %n: i32, %u: f32) {
  // expected-error @+1 {{expected a complete fragment of f32 with two axes, got}}
  tile.store_scores %f times %u to %b tokens %n group 4 apart 1 (%key: i32) {
    tile.yield %key : i32
  } : !tile.fragment<[key 16], f32, row> -> !tile.buffer<i16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row>, %b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, got '!tile.buffer<bf16>'}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row> -> !tile.buffer<bf16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 64], f32, acc>, %b: !tile.buffer<i32>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, f16, bf16 or f8E4M3FN, got '!tile.buffer<i32>'}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile.buffer<i32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 8], f32, acc>, %b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a multiple of 16 lines and of 16 columns, got}}
  tile.store %f to %b lines %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16, feature 8], f32, acc> -> !tile.buffer<bf16>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{a fragment with one axis has no columns}}
  tile.store %f to %b lines %n column %n (%line: i32) {
    %index = arith.extsi %line : i32 to i64
    tile.yield %index : i64
  } : !tile.fragment<[query 16], f32, row> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16, feature 64], f32, acc>, %b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected the region to yield 'i64', got 'i16'}}
  tile.store %f to %b lines %n (%line: i32) {
    %slot = arith.trunci %line : i32 to i16
    tile.yield %slot : i16
  } : !tile.fragment<[query 16, feature 64], f32, acc> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f16 or bf16, got '!tile.buffer<f32>'}}
  %0 = tile.load_features %b (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<f32> -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a multiple of 16 lines and of 16 columns, got}}
  %0 = tile.load_features %b (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile.fragment<[query 16, feature 24], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected an accumulator of f32 with two axes, got}}
  %0 = tile.load_features %b (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile.fragment<[query 16, feature 32], bf16>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected a multiple of 16 lines and of 8 columns, got}}
  %0 = tile.load_lines %b lines %n stride 64 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<f32> -> !tile.fragment<[query 16, feature 20], f32>
  return
}

// -----

func.func @f(%f: !tile.fragment<[query 16], f32, row>, %b: !tile.buffer<f32>, %n: i64) {
  // expected-error @+1 {{expected a complete fragment of f32 with two axes, got '!tile.fragment<[query 16], f32, row>'}}
  tile.store_lanes %f to %b[%n] : !tile.fragment<[query 16], f32, row> -> !tile.buffer<f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %n: i64) {
  // expected-error @+1 {{expected a multiple of 16 lines and of 8 columns, got '!tile.fragment<[query 16, feature 20], f32>'}}
  %0 = tile.load_lanes %b[%n] : !tile.buffer<f32> -> !tile.fragment<[query 16, feature 20], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %n: i64) {
  // expected-error @+1 {{expected a buffer of f32, got '!tile.buffer<bf16>'}}
  %0 = tile.load_lanes %b[%n] : !tile.buffer<bf16> -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, got '!tile.buffer<bf16>'}}
  %0 = tile.load_lines %b lines %n stride 64 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected multiples of 16 lines and 32 columns, got}}
  %0 = tile.load_sums %b lines %n stride 64 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<f32> -> !tile.fragment<[query 16, feature 48], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<bf16>, %n: i32) {
  // expected-error @+1 {{expected a buffer of f32, got '!tile.buffer<bf16>'}}
  %0 = tile.load_sums %b lines %n stride 64 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<bf16> -> !tile.fragment<[query 16, feature 32], f32>
  return
}

// -----

func.func @f(%b: !tile.buffer<f32>, %n: i32) {
  // expected-error @+1 {{expected a complete fragment of f32 with two axes, got}}
  %0 = tile.load_sums %b lines %n stride 64 (%line: i32) {
    tile.yield %line : i32
  } : !tile.buffer<f32> -> !tile.fragment<[query 16, feature 32], bf16>
  return
}

// -----

func.func @signal_of_floats(%memory: !tile.buffer<f32>, %value: i32, %at: i64) {
  // expected-error @below {{'tile.signal' op expected a buffer of i32, got '!tile.buffer<f32>'}}
  tile.signal %value to %memory[%at] : <f32>
  return
}

// -----

func.func @post_to_floats(%memory: !tile.buffer<f32>, %value: i32, %at: i64) {
  // expected-error @below {{'tile.semaphore_post' op expected a buffer of i32, got '!tile.buffer<f32>'}}
  tile.semaphore_post %value to %memory[%at] : <f32>
  return
}

// -----

func.func @semaphore_of_floats(%memory: !tile.buffer<f32>, %value: i32, %at: i64) {
  // expected-error @below {{'tile.semaphore_wait' op expected a buffer of i32, got '!tile.buffer<f32>'}}
  tile.semaphore_wait %memory[%at] reaches %value : <f32>
  return
}

// -----

func.func @wait_for_floats(%memory: !tile.buffer<f32>, %value: i32, %at: i64) {
  // expected-error @below {{'tile.wait_signal' op expected a buffer of i32, got '!tile.buffer<f32>'}}
  %reached = tile.wait_signal %memory[%at] reaches %value within %at : <f32>
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error @+1 {{expected 4 numbers for a word of 'f8E4M3FN', got 2}}
  %0 = tile.pack %x, %x : f8E4M3FN
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error @+1 {{expected elements of f16, bf16 or f8E4M3FN, got 'f8E5M2'}}
  %0 = tile.pack %x, %x, %x, %x : f8E5M2
  return
}

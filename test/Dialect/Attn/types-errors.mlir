// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expected a page size that is a power of two from 1 to 256, got 24; nearest legal: 16 or 32}}
func.func private @page(!attn.kv<paged<24>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a page size that is a power of two from 1 to 256, got 0; nearest legal: 1}}
func.func private @page(!attn.kv<paged<0>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a page size that is a power of two from 1 to 256, got 512; nearest legal: 256}}
func.func private @page(!attn.kv<paged<512>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a store, one of dense, packed and paged<N>, got ring}}
func.func private @store(!attn.kv<ring, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected 'heads'}}
func.func private @ragged(!attn.kv<paged<16>, rugged, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected KV heads from 1 to 4096, got 0; nearest legal: 1}}
func.func private @heads(!attn.kv<dense, heads = 0, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected KV heads from 1 to 4096, got 5000; nearest legal: 4096}}
func.func private @heads(!attn.kv<dense, heads = 5000, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, got 100; nearest legal: 96 or 104}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 100, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, got 4; nearest legal: 8}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 4, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected value dim to be a multiple of 8 from 8 to 256, got 512; nearest legal: 256}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 128, value_dim = 512, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key elements to be f16, bf16 or f8e4m3fn, got 'f32'}}
func.func private @key(!attn.kv<dense, heads = 8, dim = 128, key = f32, value = bf16>)

// -----

// expected-error @below {{expected value elements to be f16, bf16 or f8e4m3fn, got 'i8'}}
func.func private @value(!attn.kv<dense, heads = 8, dim = 128, key = bf16, value = i8>)

// -----

// expected-error @below {{expected state heads from 1 to 4096, got 0; nearest legal: 1}}
func.func private @state(!attn.state<heads = 0, value_dim = 64>)

// -----

// expected-error @below {{expected state value dim to be a multiple of 8 from 8 to 256, got 44; nearest legal: 40 or 48}}
func.func private @state(!attn.state<heads = 1, value_dim = 44>)

// -----

// expected-error @below {{expected key elements to be f16, bf16 or f8e4m3fn, got 'f8E5M2'}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 64, key = f8E5M2, value = f8E4M3FN>

// -----

// expected-error @below {{expected a value dim of whole 16 bytes, a multiple of 16 elements of 'f8E4M3FN', got 24; nearest legal: 16 or 32}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 64, value_dim = 24, key = bf16, value = f8E4M3FN>

// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expected a page size that is 1 to 8 or a multiple of 16 up to 2048, got 24; nearest legal: 16 or 32}}
func.func private @page(!attn.kv<paged<24>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a page size that is 1 to 8 or a multiple of 16 up to 2048, got 0; nearest legal: 1}}
func.func private @page(!attn.kv<paged<0>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a page size that is 1 to 8 or a multiple of 16 up to 2048, got 2049; nearest legal: 2048}}
func.func private @page(!attn.kv<paged<2049>, heads = 8, dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected a store, one of dense, packed, paged<N> and unified<N>, got ring}}
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

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, or of 32 up to 576, got 100; nearest legal: 96 or 104}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 100, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, or of 32 up to 576, got 4; nearest legal: 8}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 4, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected value dim to be a multiple of 8 from 8 to 256, or of 128 up to 512, got 600; nearest legal: 512}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 128, value_dim = 600, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key elements to be f16 or bf16, or quantized as in !attn.quantized<i8, per = 128>, got 'f32'}}
func.func private @key(!attn.kv<dense, heads = 8, dim = 128, key = f32, value = bf16>)

// -----

// expected-error @below {{expected value elements to be f16 or bf16, or quantized as in !attn.quantized<i8, per = 128>, got 'i8'}}
func.func private @value(!attn.kv<dense, heads = 8, dim = 128, key = bf16, value = i8>)

// -----

// expected-error @below {{expected state heads from 1 to 4096, got 0; nearest legal: 1}}
func.func private @state(!attn.state<heads = 0, value_dim = 64>)

// -----

// expected-error @below {{expected state value dim to be a multiple of 8 from 8 to 256, or of 128 up to 512, got 44; nearest legal: 40 or 48}}
func.func private @state(!attn.state<heads = 1, value_dim = 44>)

// -----

// expected-error @below {{expected key elements to be f16 or bf16, or quantized as in !attn.quantized<i8, per = 128>, got 'f8E5M2'}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 64, key = f8E5M2, value = !attn.quantized<f8E4M3FN, per = head>>

// -----

// expected-error @below {{values: expected a dim of whole 16 bytes, a multiple of 16 elements of f8e4m3fn, got 24; nearest legal: 16 or 32}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 64, value_dim = 24, key = bf16, value = !attn.quantized<f8E4M3FN, per = head>>

// -----

// expected-error @below {{keys: expected a dim of whole 16 bytes, a multiple of 64 elements of i2, got 80; nearest legal: 64 or 128}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 80, key = !attn.quantized<i2, per = 16>, value = bf16>

// -----

// expected-error @below {{values: expected a group of 16, 32, 64 or 128 features that divides the dim of 96, or all of it, got 64; nearest legal: 96}}
func.func private @f() -> !attn.kv<dense, heads = 8, dim = 96, key = bf16, value = !attn.quantized<i4, per = 64>>

// -----

// expected-error @below {{expected quantized integers of 8, 4 or 2 bits, got 3; nearest legal: i4}}
func.func private @f(!attn.quantized<i3, per = 64>)

// -----

// expected-error @below {{expected quantized integers per a number of features, got per head; nearest legal: per = 128}}
func.func private @f(!attn.quantized<i4, per = head>)

// -----

// expected-error @below {{expected quantized integers per a number of features, got per 0; nearest legal: per = 128}}
func.func private @f(!attn.quantized<i4, per = 0>)

// -----

// expected-error @below {{expected f8e4m3fn values per tensor, head or token, got per 64; nearest legal: per = token}}
func.func private @f(!attn.quantized<f8E4M3FN, per = 64>)

// -----

// expected-error @below {{expected f16 or bf16, or quantized f8E4M3FN, f8E5M2, i8, i4 or i2, got bf16 per head; nearest legal: bf16}}
func.func private @f(!attn.quantized<bf16, per = head>)

// -----

// expected-error @below {{expected quantized elements of f8E4M3FN, f8E5M2, i8, i4 or i2, or of f4E2M1FN in blocks, got 'ui4'}}
func.func private @f(!attn.quantized<ui4, per = 64>)

// -----

// expected-error @below {{expected tensor, head, token or a number of features, got group}}
func.func private @f(!attn.quantized<i4, per = group>)

// -----

// expected-error @below {{expected blocks of f8e4m3fn per 32 by f8e8m0fnu, f8e5m2 per 32 by f8e8m0fnu, f4e2m1fn per 32 by f8e8m0fnu or f4e2m1fn per 16 by f8e4m3fn, got f4e2m1fn per 16 by f8e8m0fnu; nearest legal: f4e2m1fn per 32 by f8e8m0fnu}}
func.func private @f(!attn.quantized<f4E2M1FN, per = 16, scale = f8E8M0FNU>)

// -----

// expected-error @below {{expected quantized elements of f8E4M3FN, f8E5M2, i8, i4 or i2, or of f4E2M1FN in blocks, got 'f4E2M1FN'}}
func.func private @f(!attn.quantized<f4E2M1FN, per = token>)

// -----

// expected-error @below {{expected scales of f8e8m0fnu, f8e4m3fn, or none named, got 'f8E5M2'}}
func.func private @f(!attn.quantized<f4E2M1FN, per = 32, scale = f8E5M2>)

// -----

// expected-error @below {{got f8e4m3fn per 16 by f8e4m3fn; nearest legal: f4e2m1fn per 16 by f8e4m3fn}}
func.func private @f(!attn.quantized<f8E4M3FN, per = 16, scale = f8E4M3FN>)

// -----

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, or of 32 up to 576, got 600; nearest legal: 576}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 600, value_dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected key dim to be a multiple of 8 from 8 to 256, or of 32 up to 576, got 264; nearest legal: 256 or 288}}
func.func private @dim(!attn.kv<dense, heads = 8, dim = 264, value_dim = 128, key = bf16, value = bf16>)

// -----

// expected-error @below {{expected value dim to be a multiple of 8 from 8 to 256, or of 128 up to 512, got 320; nearest legal: 256 or 384}}
func.func private @latent(!attn.kv<dense, heads = 1, dim = 576, key = bf16, value = first<320>>)

// -----

// expected-error @below {{expected a value inside of its key, the first of its 320 features, got first<512>; nearest legal: 256}}
func.func private @latent(!attn.kv<packed, heads = 1, dim = 320, key = bf16, value = first<512>>)

// -----

// expected-error @below {{expected a value inside of its key, the first of its 80 features, got first<96>; nearest legal: 80}}
func.func private @latent(!attn.kv<packed, heads = 1, dim = 80, key = bf16, value = first<96>>)

// -----

// expected-error @below {{expected keys and values apart in a unified store, got values that are a part of their keys; nearest legal: paged}}
func.func private @latent(!attn.kv<unified<16>, heads = 1, dim = 128, key = bf16, value = first<64>>)

// -----

// expected-error @below {{expected keys of f16, bf16 or f8E4M3FN with a scale per tensor, head or token, or per 128 and a rest of 64, where values are a part of them, got '!attn.quantized<i8, per = 128>'; nearest legal: !attn.quantized<f8E4M3FN, per = token>}}
func.func private @latent(!attn.kv<paged<16>, heads = 1, dim = 128, key = !attn.quantized<i8, per = 128>, value = first<64>>)

// -----

// expected-error @below {{expected keys of f16, bf16 or f8E4M3FN with a scale per tensor, head or token, or per 128 and a rest of 64, where values are a part of them, got '!attn.quantized<f8E5M2, per = head>'}}
func.func private @latent(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E5M2, per = head>, value = first<512>>)

// -----

// expected-error @below {{where values are a part of them, got '!attn.quantized<f8E4M3FN, per = 32, scale = f8E8M0FNU>'}}
func.func private @latent(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 32, scale = f8E8M0FNU>, value = first<512>>)

// -----

// expected-error @below {{expected a value that is the quantized features of its key beside a rest of 64; nearest legal: value = first<512>}}
func.func private @mixed(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = first<256>>)

// -----

// expected-error @below {{expected a value that is the quantized features of its key beside a rest of 64; nearest legal: value = first<512>}}
func.func private @mixed(!attn.kv<paged<16>, heads = 1, dim = 576, value_dim = 512, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = bf16>)

// -----

// expected-error @below {{keys: expected rows of 576 features, 512 of f8E4M3FN and a rest of 64, got 320; nearest legal: 576}}
func.func private @mixed(!attn.kv<paged<16>, heads = 1, dim = 320, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = first<256>>)

// -----

// expected-error @below {{expected rows of f8E4M3FN per 128 and a rest of 64 features, got per 64 and a rest of 64; nearest legal: per = 128, rest = 64}}
func.func private @mixed(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 64, rest = 64>, value = first<512>>)

// -----

// expected-error @below {{expected a rest of features beside f8E4M3FN per 128, got 'i8' per 128; nearest legal: !attn.quantized<f8E4M3FN, per = 128, rest = 64>}}
func.func private @mixed(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<i8, per = 128, rest = 64>, value = first<512>>)

// -----

!query = tensor<?x16x576xf16>
!output = tensor<?x16x512xf16>
!mixed = !attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = 128, rest = 64>, value = first<512>>
func.func @half(%q: !query {attn.name = "q"}, %kv: !mixed {attn.name = "kv"}) -> !output {
  // expected-error @below {{expected queries of bf16 beside keys whose last 64 features are bf16, got 'f16'}}
  %o = attn.attend %q over (%kv see causal) : !query, !mixed -> !output
  return %o : !output
}

// -----

// expected-error @below {{expected a value of up to 256 or of 512 features of quantized keys, got first<384>; nearest legal: first<256> or first<512>}}
func.func private @latent(!attn.kv<paged<16>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<384>>)

// -----

// expected-error @below {{expected a value of up to 256 or of 512 features of quantized keys, got first<384>; nearest legal: first<256>}}
func.func private @latent(!attn.kv<paged<16>, heads = 1, dim = 448, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<384>>)

// -----

// expected-error @below {{expected keys of f16 or bf16 beside more than 256 features, got '!attn.quantized<i8, per = 128>' with 512}}
func.func private @wide(!attn.kv<paged<16>, heads = 1, dim = 512, key = !attn.quantized<i8, per = 128>, value = bf16>)

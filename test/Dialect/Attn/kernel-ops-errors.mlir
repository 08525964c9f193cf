// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @neither(%o: tensor<?x8x64xbf16>) {
  // expected-error @+1 {{expected either rows of a task or a row of the output}}
  attn.write %o : tensor<?x8x64xbf16>
  return
}

// -----

// expected-error @+1 {{expected mmas to be mma or wgmma, got started}}
func.func private @mmas() attributes {attn.form = #attn.form<mmas = started, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = bf16, traits = none>}

// -----

// expected-error @+1 {{expected heads to be a multiple of kv_heads, got 8 and 3}}
func.func private @heads() attributes {attn.form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 3, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = bf16, traits = none>}

// -----

// expected-error @+1 {{expected tiles with features for 64 and 64, got 64 and 32}}
func.func private @tiles() attributes {attn.form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 32, element = bf16, traits = none>}

// -----

// expected-error @+1 {{expected elements of f16 or bf16, got 'f32'}}
func.func private @element() attributes {attn.form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64, key_tile = 64, value_tile = 64, element = f32, traits = none>}

// -----

// expected-error @+1 {{expected 'attn.form' to be an #attn.form, got 1 : i32}}
func.func private @form() attributes {attn.form = 1 : i32}

// -----

func.func @name(%rows: tensor<?x8x64xbf16>, %i: i32) {
  // expected-error @+1 {{expected the name of a copy (query, keys, values, ...), got lines}}
  %s = attn.staged %rows in lines %i : tensor<?x8x64xbf16> in i32
  return
}

// -----

func.func @names(%rows: tensor<?x8x64xbf16>, %i: i32) {
  // expected-error @+1 {{expected a name for each copy, got 0 for 1}}
  %s = "attn.staged"(%rows, %i) <{names = []}> : (tensor<?x8x64xbf16>, i32) -> tensor<?x8x64xbf16>
  return
}

// -----

// expected-error @+1 {{expected tiles with features for 576 and 512, got 576 and 384}}
func.func private @slices() attributes {attn.form = #attn.form<mmas = mma, stationary = rows, rows = 16, keys = 16, heads = 8, kv_heads = 1, key_dim = 576, value_dim = 512, key_tile = 576, value_tile = 384, element = bf16, traits = none>}

// -----

// expected-error @+1 {{expected 'attn.numerics' to be "row", got "rows"}}
func.func private @numerics() attributes {attn.numerics = "rows"}

// -----

func.func @gate(%o: tensor<?x8x64xbf16>, %gate: tensor<?x4xbf16>, %row: i64) {
  // expected-error @+1 {{expected the gate to be 'tensor<?x8x64xbf16>', one number per feature, or 'tensor<?x8xbf16>', one per head, got 'tensor<?x4xbf16>'}}
  attn.write %o to %row gate %gate : tensor<?x8x64xbf16> gate tensor<?x4xbf16>
  return
}

// -----

func.func @output_scale(%o: tensor<?x8x64xf8E4M3FN>, %row: i64) {
  // expected-error @+1 {{expected an output of f8E4M3FN to have an output_scale of 'tensor<1xf32>', by which outputs are divided, or output_scales, got none}}
  attn.write %o to %row : tensor<?x8x64xf8E4M3FN>
  return
}

// -----

func.func @output_scales(%o: tensor<?x8x64xbf16>, %row: i64) {
  // expected-error @+1 {{expected an output of f8E4M3FN beside output_scales, got 'bf16'}}
  attn.write %o to %row output_scales : tensor<?x8x64xbf16>
  return
}

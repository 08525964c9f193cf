// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @neither(%o: tensor<?x8x64xbf16>) {
  // expected-error @+1 {{expected either rows of a task or a row of the output}}
  attn.write %o : tensor<?x8x64xbf16>
  return
}

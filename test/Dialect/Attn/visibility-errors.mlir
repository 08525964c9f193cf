// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n) or a parenthesis, got 'masked'}}
module attributes {a = #attn.visibility<masked>} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n) or a parenthesis}}
module attributes {a = #attn.visibility<causal & >} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n) or a parenthesis, got 'or'}}
module attributes {a = #attn.visibility<or>} {}

// -----

// expected-error @below {{expected '('}}
module attributes {a = #attn.visibility<window>} {}

// -----

// expected-error @below {{expected the size of window to be from 0 to 2147483647, got -1; nearest legal: 0}}
module attributes {a = #attn.visibility<window(-1)>} {}

// -----

// expected-error @below {{expected the size of sink to be from 0 to 2147483647, got 2147483648; nearest legal: 2147483647}}
module attributes {a = #attn.visibility<sink(2147483648)>} {}

// -----

// expected-error @below {{expected a visibility of at most 32 nested parentheses}}
module attributes {a = #attn.visibility<(((((((((((((((((((((((((((((((((all)))))))))))))))))))))))))))))))))>} {}

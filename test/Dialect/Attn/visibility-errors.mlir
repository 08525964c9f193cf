// RUN: attn-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n), window(left, right), chunk(n), or a parenthesis; got 'masked'}}
module attributes {a = #attn.visibility<masked>} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n), window(left, right), chunk(n), or a parenthesis}}
module attributes {a = #attn.visibility<causal & >} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n), window(left, right), chunk(n), or a parenthesis; got 'or'}}
module attributes {a = #attn.visibility<or>} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n), window(left, right), chunk(n), or a parenthesis; got 'window'}}
module attributes {a = #attn.visibility<window>} {}

// -----

// expected-error @below {{expected a visibility: all, causal, window(n), recent(n), sink(n), window(left, right), chunk(n), or a parenthesis; got 'window' of 3 sizes}}
module attributes {a = #attn.visibility<window(1, 2, 3)>} {}

// -----

// expected-error @below {{expected the size of chunk to be from 1 to 2147483647, got 0; nearest legal: 1}}
module attributes {a = #attn.visibility<causal and chunk(0)>} {}

// -----

// expected-error @below {{expected the size of window to be from 0 to 2147483647, got -1; nearest legal: 0}}
module attributes {a = #attn.visibility<window(-1)>} {}

// -----

// expected-error @below {{expected the size of sink to be from 0 to 2147483647, got 2147483648; nearest legal: 2147483647}}
module attributes {a = #attn.visibility<sink(2147483648)>} {}

// -----

// expected-error @below {{expected a visibility of at most 32 nested parentheses}}
module attributes {a = #attn.visibility<(((((((((((((((((((((((((((((((((all)))))))))))))))))))))))))))))))))>} {}

// -----

// expected-error @below {{expected a visibility that is a union of at most 256 intersections, got more}}
module attributes {a = #attn.visibility<(window(1) | window(2) | window(3) | window(4) | window(5) | window(6) | window(7) | window(8) | window(9) | window(10) | window(11) | window(12) | window(13) | window(14) | window(15) | window(16) | window(17)) and (sink(1) | sink(2) | sink(3) | sink(4) | sink(5) | sink(6) | sink(7) | sink(8) | sink(9) | sink(10) | sink(11) | sink(12) | sink(13) | sink(14) | sink(15) | sink(16) | sink(17))>} {}

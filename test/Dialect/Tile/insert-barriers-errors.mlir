// RUN: attn-opt %s -split-input-file -verify-diagnostics --tile-insert-barriers


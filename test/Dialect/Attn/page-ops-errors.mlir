// RUN: attn-opt %s --attn-check-signature -split-input-file -verify-diagnostics

func.func @table(%table: tensor<?x?xi64> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  // expected-error @below {{expected table to be 'tensor<?x?xi32>', got 'tensor<?x?xi64>'}}
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi64>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

func.func @span(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<3xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  // expected-error @below {{expected span to be 'tensor<2xi32>', got 'tensor<3xi32>'}}
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<3xi32>, tensor<4xi32>
  return
}

// -----

func.func @left(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  // expected-error @below {{expected pages at the left of 1 to 8 or a multiple of 16 up to 2048 tokens, got 24; nearest legal: 16 or 32}}
  attn.manage_pages %table counts %counts of %tokens left 24 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

func.func @right(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  // expected-error @below {{expected pages at the right of 1 to 8 or a multiple of 16 up to 2048 tokens, got 2064; nearest legal: 2048}}
  attn.manage_pages %table counts %counts of %tokens left 16 right 2064 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

// expected-error @below {{argument 1: expected the attribute attn.name = "counts", got none}}
func.func @unnamed(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32>,
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

// expected-error @below {{argument 3: expected the attribute attn.name = "free", got "ring"}}
func.func @named(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "ring"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

func.func @order(%counts: tensor<?x2xi32> {attn.name = "table"},
                %table: tensor<?x?xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  // expected-error @below {{expected the arguments of the function for its operands, in their order}}
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

func.func @two(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  // expected-error @below {{expected one operation on a table of pages per function and nothing beside it, got a second}}
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  return
}

// -----

func.func @beside(%table: tensor<?x?xi32> {attn.name = "table"},
                %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"},
                %free: tensor<?xi32> {attn.name = "free"},
                %span: tensor<2xi32> {attn.name = "span"},
                %status: tensor<4xi32> {attn.name = "status"}) {
  attn.manage_pages %table counts %counts of %tokens left 16 right 16 free %free span %span status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
  %one = arith.constant 1 : i32
  // expected-error @below {{expected one operation on a table of pages per function and nothing beside it, got another operation}}
  %two = arith.addi %one, %one : i32
  return
}

// -----

func.func @keep(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %keep: tensor<?x?xi1> {attn.name = "keep"},
                %from: tensor<?x?xi32> {attn.name = "from"}, %to: tensor<?x?xi32> {attn.name = "to"},
                %status: tensor<1xi32> {attn.name = "status"}) {
  // expected-error @below {{expected keep to be 'tensor<?x?xi8>', got 'tensor<?x?xi1>'}}
  attn.compact_tokens %table counts %counts of %tokens page 16 keep %keep from %from to %to status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi1>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
  return
}

// -----

func.func @page(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %keep: tensor<?x?xi8> {attn.name = "keep"},
                %from: tensor<?x?xi32> {attn.name = "from"}, %to: tensor<?x?xi32> {attn.name = "to"},
                %status: tensor<1xi32> {attn.name = "status"}) {
  // expected-error @below {{expected pages of 1 to 8 or a multiple of 16 up to 2048 tokens, got 0; nearest legal: 1}}
  attn.compact_tokens %table counts %counts of %tokens right page 0 keep %keep from %from to %to status %status
      : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
  return
}

// -----

func.func @window(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected window to be 1 to 536870912, got 0}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 0 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        attn.rank %sum
      } decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @rows(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected rows to be 0 to 536870912, got -1}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 1 rows -1
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        attn.rank %sum
      } decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @of_revision(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected pages at the right of 1 to 8 or a multiple of 16 up to 2048 tokens, got 12; nearest legal: 8 or 16}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 12 window 1 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        attn.rank %sum
      } decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @score(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xi32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected score to be 'tensor<?x?xf32>', got 'tensor<?x?xi32>'}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 1 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        attn.rank %sum
      } decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xi32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @rank_takes(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected the rank region to take ('f32', 'i32', 'i32', 'i32'), got ('f32', 'i32')}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 1 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32):
        attn.rank %sum
      }
      decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @rank_reads(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-note @below {{in the rank region of this operation}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 1 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        // expected-error @below {{expected the right operand to be a constant in a rank region}}
        %by = arith.divsi %count, %at : i32
        %worth = arith.sitofp %by : i32 to f32
        attn.rank %worth
      }
      decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.decide leaving demoted %e0 gone %e0, least demoted %e1 gone %e1, lowest gone %e2
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @decide_ends(%table: tensor<?x?xi32> {attn.name = "table"}, %high: tensor<?xi32> {attn.name = "high"}, %low: tensor<?xi32> {attn.name = "low"},
    %seen: tensor<?xi32> {attn.name = "seen"}, %prompt: tensor<?xi32> {attn.name = "prompt"},
    %limits: tensor<?x2xf32> {attn.name = "limits"}, %sees: tensor<?x2xi32> {attn.name = "sees"}, %score: tensor<?x?xf32> {attn.name = "score"},
    %position: tensor<?x?xi32> {attn.name = "position"}, %worth_high: tensor<?x?xf32> {attn.name = "worth_high"},
    %worth_low: tensor<?x?xf32> {attn.name = "worth_low"}, %done: tensor<4xi32> {attn.name = "done"},
    %down_from: tensor<?xi32> {attn.name = "down_from"}, %down_to: tensor<?xi32> {attn.name = "down_to"},
    %move_from: tensor<?xi32> {attn.name = "move_from"}, %move_to: tensor<?xi32> {attn.name = "move_to"}) {
  // expected-error @below {{expected the decide region to end with attn.decide}}
  attn.revise_tokens %table high %high low %low seen %seen prompt %prompt limits %limits sees %sees score %score position %position
      worth %worth_high, %worth_low done %done demote %down_from to %down_to move %move_from to %move_to
      left 32 right 64 window 1 rows 0
      rank {
      ^bb0(%sum: f32, %count: i32, %at: i32, %tokens: i32):
        attn.rank %sum
      }
      decide {
      ^bb0(%r0: f32, %e0: i1, %r1: f32, %e1: i1, %r2: f32, %e2: i1, %high_count: i32, %low_count: i32, %tokens: i32, %first: f32, %second: f32):
        attn.rank %r0
      }
      : tensor<?x?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x?xf32>,
        tensor<?x?xi32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<4xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>
  return
}

// -----

func.func @one_rank(%result: tensor<?x?xi32> {attn.name = "result"}, %total: tensor<?xf32> {attn.name = "total"},
                    %memory: tensor<1x?xi32> {attn.name = "memory"}) {
  // expected-error @below {{expected 2 to 32 ranks, got 1; nearest legal: 2}}
  attn.merge_states %memory to %result, %total ranks 1 element bf16 : tensor<?x?xi32>, tensor<?xf32>, tensor<1x?xi32>
  return
}

// -----

func.func @other_ranks(%result: tensor<?x?xi32> {attn.name = "result"}, %total: tensor<?xf32> {attn.name = "total"},
                       %memory: tensor<4x?xi32> {attn.name = "memory"}) {
  // expected-error @below {{expected memory to be 'tensor<8x?xi32>', got 'tensor<4x?xi32>'}}
  attn.merge_states %memory to %result, %total ranks 8 element bf16 : tensor<?x?xi32>, tensor<?xf32>, tensor<4x?xi32>
  return
}

// -----

func.func @wide_elements(%result: tensor<?x?xi32> {attn.name = "result"}, %total: tensor<?xf32> {attn.name = "total"},
                         %memory: tensor<4x?xi32> {attn.name = "memory"}) {
  // expected-error @below {{expected elements of bf16 or f16, got 'f32'}}
  attn.merge_states %memory to %result, %total ranks 4 element f32 : tensor<?x?xi32>, tensor<?xf32>, tensor<4x?xi32>
  return
}

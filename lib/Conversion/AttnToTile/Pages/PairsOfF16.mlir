
// Two f16 elements of a word.
func.func private @low(%word: i32) -> f32 {
  %half = arith.trunci %word : i32 to i16
  %element = arith.bitcast %half : i16 to f16
  %value = arith.extf %element : f16 to f32
  return %value : f32
}

func.func private @high(%word: i32) -> f32 {
  %bits = arith.constant 16 : i32
  %shifted = arith.shrui %word, %bits : i32
  %half = arith.trunci %shifted : i32 to i16
  %element = arith.bitcast %half : i16 to f16
  %value = arith.extf %element : f16 to f32
  return %value : f32
}

func.func private @pair(%low: f32, %high: f32) -> i32 {
  %bits = arith.constant 16 : i32
  %low_rounded = arith.truncf %low : f32 to f16
  %high_rounded = arith.truncf %high : f32 to f16
  %low_bits = arith.bitcast %low_rounded : f16 to i16
  %high_bits = arith.bitcast %high_rounded : f16 to i16
  %low_word = arith.extui %low_bits : i16 to i32
  %high_word = arith.extui %high_bits : i16 to i32
  %shifted = arith.shli %high_word, %bits : i32
  %word = arith.ori %shifted, %low_word : i32
  return %word : i32
}

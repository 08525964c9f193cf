# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ATTN_SANITIZE instruments the code compiled here. LLVM and MLIR, Boost.Context and the kernels of the host
# device are not instrumented. Findings end the program, so that a test cannot pass with one.
if(ATTN_SANITIZE STREQUAL "address")
  # -fsanitize=function looks for a function's type before its code, where kernels and parts of LLVM have
  # none. -fsanitize=vptr needs the type information of LLVM's classes.
  set(_sanitize -fsanitize=address,undefined -fno-sanitize=function,vptr -fno-sanitize-recover=all)
elseif(ATTN_SANITIZE STREQUAL "thread")
  set(_sanitize -fsanitize=thread)
elseif(ATTN_SANITIZE)
  message(FATAL_ERROR "ATTN_SANITIZE is '${ATTN_SANITIZE}'; expected address or thread")
else()
  return()
endif()
add_compile_options(${_sanitize} -O1 -gline-tables-only -fno-omit-frame-pointer)
add_link_options(${_sanitize})

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# attn_link_older_glibc(<target>): a shared library or a program that has the C++ library inside then needs no glibc after
# 2.34; runtime/src/compat/OlderGlibc.c says how. Sanitizers come with a C++ library of the system's.
add_library(attn_older_glibc OBJECT ${PROJECT_SOURCE_DIR}/runtime/src/compat/OlderGlibc.c)
target_compile_options(attn_older_glibc PRIVATE -Wall -Wextra)
function(attn_link_older_glibc target)
  if(NOT ATTN_SANITIZE)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:attn_older_glibc>)
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# A shared library exports the symbols that headers of the C API declare. Stable symbols have the version of
# the interface. Symbols of Unstable.h have the version of the exact release, so that a program linked with
# another release does not start. test/install/symbols.txt lists the result.

# attn_export_headers(<target> [ALSO <symbols>...]): ALSO names symbols that are as unstable as Unstable.h and
# in no header.
function(attn_export_headers target)
  cmake_parse_arguments(_export "" "" ALSO ${ARGN})
  set(_stable "")
  set(_unstable ${_export_ALSO})
  file(GLOB _headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/attn-c/*.h)
  foreach(_header ${_headers})
    file(STRINGS ${_header} _lines REGEX "^ATTN_C_EXPORT ")
    foreach(_line ${_lines})
      if(NOT _line MATCHES "[ *](attn[A-Za-z0-9]+)\\(")
        message(FATAL_ERROR "${_header}: expected the name of a function behind ATTN_C_EXPORT: ${_line}")
      endif()
      set(_function ${CMAKE_MATCH_1}) # the next match replaces it
      if(_header MATCHES "/Unstable.h$")
        list(APPEND _unstable ${_function})
      else()
        list(APPEND _stable ${_function})
      endif()
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_header})
  endforeach()
  string(REPLACE ";" "; " _stable "${_stable}")
  string(REPLACE ";" "; " _unstable "${_unstable}")
  set(_map ${CMAKE_BINARY_DIR}/${target}.map)
  file(CONFIGURE OUTPUT ${_map} CONTENT "ATTN_${PROJECT_VERSION_MAJOR} {
  global: ${_stable};
  local: *;
};
ATTN_UNSTABLE_${PROJECT_VERSION} {
  global: ${_unstable};
};
")
  # Some functions are in one library alone: the runtime lacks the compiler's.
  target_link_options(${target} PRIVATE -Wl,--version-script=${_map} -Wl,--undefined-version)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${_map})
endfunction()

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Finds MLIR/LLVM 22 as Debian packages them and handles their two traps:
#  * every exported MLIR archive names the shared libLLVM in its link interface, so a static link would silently
#    load a second LLVM; the interface is cleaned when ATTN_STATIC is on;
#  * LLVM_DEFINITIONS is one string and has to be split before use.
# The static library embeds zlib and zstd, too: it needs nothing but the C library.
if(ATTN_STATIC)
  set(ZLIB_USE_STATIC_LIBS ON)
endif()
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)

separate_arguments(_attn_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_library(attn_llvm_flags INTERFACE)
target_include_directories(attn_llvm_flags SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_compile_options(attn_llvm_flags INTERFACE ${_attn_llvm_definitions} -fno-exceptions)
if(ATTN_SANITIZE) # builds of no type have assertions; LLVM's headers must match LLVM's own build
  target_compile_definitions(attn_llvm_flags INTERFACE NDEBUG)
endif()

if(ATTN_STATIC)
  set(LLVM_LINK_LLVM_DYLIB OFF)
  set(MLIR_LINK_MLIR_DYLIB OFF)
  foreach(target ${MLIR_EXPORTED_TARGETS})
    get_target_property(_interface ${target} INTERFACE_LINK_LIBRARIES)
    if(_interface)
      list(REMOVE_ITEM _interface LLVM MLIR)
      set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES "${_interface}")
    endif()
  endforeach()
  get_target_property(_interface LLVMSupport INTERFACE_LINK_LIBRARIES)
  list(TRANSFORM _interface REPLACE "^zstd::libzstd_shared$" zstd::libzstd_static)
  set_property(TARGET LLVMSupport PROPERTY INTERFACE_LINK_LIBRARIES "${_interface}")
  llvm_map_components_to_libnames(_attn_llvm_components
    NVPTXCodeGen NVPTXDesc NVPTXInfo X86CodeGen X86Desc X86Info X86AsmParser Passes)
  set(ATTN_LLVM_LIBS
    MLIROptLib MLIRParser MLIRArithDialect MLIRArithToLLVM MLIRMathDialect MLIRSCFDialect MLIRSCFToControlFlow
    MLIRSCFTransforms MLIRControlFlowDialect MLIRControlFlowToLLVM MLIRFuncDialect MLIRFuncToLLVM MLIRGPUDialect
    MLIRLLVMDialect MLIRNVVMDialect MLIRNVVMToLLVM MLIRReconcileUnrealizedCasts MLIRTensorDialect MLIRDLTIDialect
    MLIRTargetLLVMIRExport MLIRLLVMToLLVMIRTranslation MLIRNVVMToLLVMIRTranslation MLIRGPUToLLVMIRTranslation
    MLIRBuiltinToLLVMIRTranslation
    MLIRTransforms MLIRPass ${_attn_llvm_components})
else()
  set(ATTN_LLVM_LIBS MLIR LLVM)
endif()

# attn_tablegen(<out.inc> <file.td> <mlir-tblgen flags...>): appends to ATTN_TABLEGEN_OUTPUTS of the caller.
macro(attn_tablegen td)
  set(LLVM_TARGET_DEFINITIONS ${td})
  set(_pairs ${ARGN})
  while(_pairs)
    list(POP_FRONT _pairs _out _flags)
    separate_arguments(_flags)
    mlir_tablegen(${_out} ${_flags})
  endwhile()
endmacro()

# attn_pass_decls(<file.td> <group>): generates Passes.h.inc with the statistics of attn/Support/Statistic.h.
# MLIR's own statistics count nothing in an LLVM without assertions.
macro(attn_pass_decls td group)
  attn_tablegen(${td} Passes.mlir.inc "-gen-pass-decls -name=${group}")
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/Passes.h.inc
    COMMAND sed s/::mlir::Pass::Statistic/::mlir::attn::Statistic/ Passes.mlir.inc > Passes.h.inc
    DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/Passes.mlir.inc
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} VERBATIM)
  list(APPEND TABLEGEN_OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/Passes.h.inc)
endmacro()

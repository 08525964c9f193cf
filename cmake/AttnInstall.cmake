# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# `cmake --install build --prefix P` installs headers, libraries, programs, and the files of CMake and
# pkg-config below P; the Debian package has the same content. The component python, which the wheel takes, is
# excluded.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_cmake ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
# Tests and benchmarks are not installed, so they need not be built; the target programs must be.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attn-c DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/include/attn_rt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime
  PATTERN capi EXCLUDE # definitions of handles
  PATTERN forest EXCLUDE PATTERN picture EXCLUDE PATTERN workload EXCLUDE) # for programs only
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

set_target_properties(attn_runtime PROPERTIES EXPORT_NAME runtime)
set_target_properties(attn_runtime_static PROPERTIES EXPORT_NAME runtime_static)
set_target_properties(attn_compiler PROPERTIES EXPORT_NAME compiler)
install(TARGETS attn_runtime attn_runtime_static EXPORT attn-runtime COMPONENT runtime
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS attn_compiler EXPORT attn-compiler COMPONENT compiler
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS attn-opt attn-run attn-plan attn-workload COMPONENT compiler
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT attn-runtime NAMESPACE attn:: DESTINATION ${_cmake} COMPONENT runtime)
install(EXPORT attn-compiler NAMESPACE attn:: DESTINATION ${_cmake} COMPONENT compiler)

set(_found ${PROJECT_BINARY_DIR}/installed)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/attn-config.cmake.in ${_found}/attn-config.cmake
  INSTALL_DESTINATION ${_cmake})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${_found}/attn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${_found}/attn-config.cmake ${_found}/attn-config-version.cmake DESTINATION ${_cmake} COMPONENT runtime)

foreach(_part runtime compiler)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/attn-${_part}.pc.in ${_found}/attn-${_part}.pc @ONLY)
  install(FILES ${_found}/attn-${_part}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${_part})
endforeach()

# cpack --config build/CPackConfig.cmake: attn_<version>_amd64.deb
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME attn)
set(CPACK_PACKAGE_VENDOR "the attn project")
set(CPACK_PACKAGE_CONTACT "the attn project <attn@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "A compiler for attention, and the runtime of what it compiles")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
  WORLD_READ WORLD_EXECUTE)
include(CPack)

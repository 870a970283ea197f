# What others build on: liblockstep, static and shared, and all that `cmake --install` and cpack put on a machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# ---- liblockstep: include/lockstep/lockstep.h over the objects that the command is made of ----
set(library_parts lockstep_core lockstep_layers lockstep_fixtures lockstep_ref lockstep_compare lockstep_plugin lockstep_emu lockstep_gpu
  lockstep_session)
if(LOCKSTEP_HAVE_CUDA)
  list(APPEND library_parts lockstep_cuda)
endif()
set(library_objects)
foreach(part ${library_parts})
  list(APPEND library_objects $<TARGET_OBJECTS:${part}>)
endforeach()
# in the order in which a linker needs them
set(library_needs lockstep::json lockstep::mxml lockstep::png lockstep::minizip lockstep::hdf5 lockstep::openblas lockstep::xxhash lockstep::fcontext
  Threads::Threads ${CMAKE_DL_LIBS} m)
if(LOCKSTEP_HAVE_CUDA)
  list(PREPEND library_needs CUDA::cudart_static CUDA::cublasLt)
endif()
file(STRINGS ${CMAKE_SOURCE_DIR}/include/lockstep/lockstep.h abi REGEX "^#define LOCKSTEP_ABI [0-9]+$")
string(REGEX REPLACE "^#define LOCKSTEP_ABI " "" abi "${abi}")

function(lockstep_api target kind)
  add_library(${target} ${kind} ${CMAKE_SOURCE_DIR}/api/lockstep_api.c ${library_objects})
  lockstep_warnings(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME lockstep LINKER_LANGUAGE CXX)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_definitions(${target} PRIVATE LS_VERSION="${PROJECT_VERSION}" LS_COMMIT="${commit}"
    LS_INSTALLED_PROGRAM="${CMAKE_INSTALL_FULL_BINDIR}/lockstep")
endfunction()
lockstep_api(lockstep_api_static STATIC)
set_target_properties(lockstep_api_static PROPERTIES EXPORT_NAME static)
add_custom_command(TARGET lockstep_api_static POST_BUILD COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/package/one_object.sh
  ${CMAKE_LINKER} ${CMAKE_OBJCOPY} ${CMAKE_AR} $<TARGET_FILE:lockstep_api_static> VERBATIM)
set(package_targets lockstep_api_static)
# A shared one is made of shared libraries: archives of other projects need not be position-independent.
if(NOT LOCKSTEP_STATIC)
  lockstep_api(lockstep_api_shared SHARED)
  set_target_properties(lockstep_api_shared PROPERTIES EXPORT_NAME lockstep VERSION ${PROJECT_VERSION} SOVERSION ${abi})
  target_link_libraries(lockstep_api_shared PRIVATE ${library_needs})
  set(symbols ${CMAKE_BINARY_DIR}/lockstep.map) # public names alone, of this version of the interface
  file(CONFIGURE OUTPUT ${symbols} CONTENT "LOCKSTEP_${abi} { global: lockstep_*; local: *; };\n")
  target_link_options(lockstep_api_shared PRIVATE -Wl,--version-script=${symbols} -Wl,--no-undefined)
  list(APPEND package_targets lockstep_api_shared)
endif()

# what a user's library for `--path ./libmine.so` is built against: headers
add_library(lockstep_headers INTERFACE)
set_target_properties(lockstep_headers PROPERTIES EXPORT_NAME plugin)
target_include_directories(lockstep_headers INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# ---- the manual page: what the commands say of themselves, between lines of our own ----
find_program(LOCKSTEP_AWK awk REQUIRED)
mark_as_advanced(LOCKSTEP_AWK)
set(manual ${CMAKE_BINARY_DIR}/lockstep.1)
add_custom_command(OUTPUT ${manual}
  COMMAND sh ${CMAKE_SOURCE_DIR}/cmake/package/man_page.sh $<TARGET_FILE:lockstep> ${PROJECT_VERSION} ${LOCKSTEP_AWK} > ${manual}.new
  COMMAND ${CMAKE_COMMAND} -E rename ${manual}.new ${manual}
  DEPENDS lockstep ${CMAKE_SOURCE_DIR}/cmake/package/man_page.sh ${CMAKE_SOURCE_DIR}/cmake/package/lockstep.1.in
  COMMENT "Writing lockstep.1" VERBATIM)
add_custom_target(manual ALL DEPENDS ${manual})

# ---- installed ----
if(LOCKSTEP_HAVE_CUDA) # cuBLASLt is looked for where it was found
  set_target_properties(lockstep PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  foreach(target ${package_targets})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endforeach()
endif()
install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${package_targets} lockstep_headers EXPORT lockstep
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/lockstep/plugin.h include/lockstep/lockstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES cmake/package/lockstep.bash RENAME lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake DESTINATION ${package_folder})
configure_package_config_file(cmake/package/lockstepConfig.cmake.in ${CMAKE_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_folder} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_BINARY_DIR}/lockstepConfigVersion.cmake DESTINATION ${package_folder})
# the static library's own needs, as files: they are ours to name, not every user's to find
set(private_libraries)
foreach(name json mxml png minizip hdf5 openblas xxhash fcontext)
  string(APPEND private_libraries " ${LOCKSTEP_${name}_LIBRARY}")
endforeach()
if(LOCKSTEP_STATIC) # what those archives need in turn
  string(APPEND private_libraries " ${LOCKSTEP_sz_LIBRARY} ${LOCKSTEP_aec_LIBRARY} ${LOCKSTEP_z_LIBRARY}")
endif()
if(LOCKSTEP_HAVE_CUDA)
  get_filename_component(cublas_folder ${CUDA_cublasLt_LIBRARY} DIRECTORY)
  string(APPEND private_libraries " ${CUDA_cudart_static_LIBRARY} ${CUDA_cublasLt_LIBRARY} -Wl,-rpath,${cublas_folder} -lrt")
endif()
string(APPEND private_libraries " -lstdc++ -lpthread -ldl -lm")
configure_file(cmake/package/lockstep.pc.in ${CMAKE_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- cpack: a .deb ----
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_CONTACT "the Lockstep authors <lockstep@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "names the first place where a CUDA kernel and its reference part")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(LOCKSTEP_HAVE_CUDA) # cuBLASLt is looked at where it is; where it belongs to no package, none is named for it
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${cublas_folder})
endif()
include(CPack)

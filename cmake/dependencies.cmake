# What Lockstep is built with. scripts/setup installs all of it; docs/architecture.md says what each is for.
find_package(Threads REQUIRED)

# lockstep_dependency(name HEADER file LIBRARY names... [FOLDERS header or library folders...])
# Makes lockstep::name; says in one line what is missing and how to get it.
function(lockstep_dependency name)
  cmake_parse_arguments(want "" "HEADER" "LIBRARY;FOLDERS" ${ARGN})
  if(LOCKSTEP_STATIC)
    set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  endif()
  find_path(LOCKSTEP_${name}_INCLUDE ${want_HEADER} PATH_SUFFIXES ${want_FOLDERS})
  find_library(LOCKSTEP_${name}_LIBRARY NAMES ${want_LIBRARY} PATH_SUFFIXES ${want_FOLDERS})
  mark_as_advanced(LOCKSTEP_${name}_INCLUDE LOCKSTEP_${name}_LIBRARY)
  if(NOT LOCKSTEP_${name}_INCLUDE OR NOT LOCKSTEP_${name}_LIBRARY)
    message(FATAL_ERROR "${name}: ${want_HEADER} or its library was not found. scripts/setup installs it on Debian and Ubuntu.")
  endif()
  add_library(lockstep_${name} INTERFACE)
  target_include_directories(lockstep_${name} SYSTEM INTERFACE ${LOCKSTEP_${name}_INCLUDE})
  target_link_libraries(lockstep_${name} INTERFACE ${LOCKSTEP_${name}_LIBRARY})
  add_library(lockstep::${name} ALIAS lockstep_${name})
endfunction()

lockstep_dependency(openblas HEADER cblas.h LIBRARY openblas FOLDERS openblas-pthread openblas)
target_link_libraries(lockstep_openblas INTERFACE Threads::Threads m)

if(LOCKSTEP_STATIC) # what archives below need beside themselves
  foreach(library sz aec z)
    find_library(LOCKSTEP_${library}_LIBRARY NAMES lib${library}.a REQUIRED)
    mark_as_advanced(LOCKSTEP_${library}_LIBRARY)
  endforeach()
endif()

lockstep_dependency(hdf5 HEADER hdf5.h LIBRARY hdf5 hdf5_serial FOLDERS hdf5/serial)
if(LOCKSTEP_STATIC)
  target_link_libraries(lockstep_hdf5 INTERFACE ${LOCKSTEP_sz_LIBRARY} ${LOCKSTEP_aec_LIBRARY} ${LOCKSTEP_z_LIBRARY} m ${CMAKE_DL_LIBS})
endif()

lockstep_dependency(json HEADER jansson.h LIBRARY jansson)

lockstep_dependency(mxml HEADER mxml.h LIBRARY mxml)

lockstep_dependency(png HEADER png.h LIBRARY png)
if(LOCKSTEP_STATIC)
  target_link_libraries(lockstep_png INTERFACE ${LOCKSTEP_z_LIBRARY} m)
endif()

lockstep_dependency(minizip HEADER minizip/zip.h LIBRARY minizip)
if(LOCKSTEP_STATIC)
  target_link_libraries(lockstep_minizip INTERFACE ${LOCKSTEP_z_LIBRARY})
endif()

lockstep_dependency(xxhash HEADER xxhash.h LIBRARY xxhash)

# always the static one: 10 KB, and a carried binary needs no Boost
lockstep_dependency(fcontext HEADER boost/context/detail/fcontext.hpp LIBRARY libboost_context.a boost_context)

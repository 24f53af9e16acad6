# Rooms: object libraries that together make libdistattn.

# distattn_room(<name> SOURCES ... [LINK ...]): an object library that sees core/include and its own LINK.
function(distattn_room name)
  distattn_objects(${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY DISTATTN_ROOMS distattn_${name})
endfunction()

# The same for what the library does without, and its command and tests link.
function(distattn_objects name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  set(target distattn_${name})
  add_library(${target} OBJECT ${ROOM_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include>")
  target_link_libraries(${target} PUBLIC ${ROOM_LINK})
  # Only what public headers declare leaves the library: they say so by a pragma, which definitions elsewhere inherit
  # with every compiler; of a namespace that is marked, clang lets only what stands in that very block out.
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  distattn_warnings(${target})
  if("fmt::fmt" IN_LIST ROOM_LINK)  # kernels, which are compiled in other ways, make no texts
    distattn_read_once(${target})
  endif()
endfunction()

# distattn_read_once(<room>): builds that compile several files at once read once what nearly every file includes, in the
# first room, text, for all of its options. Other builds show what a file forgot to include.
function(distattn_read_once target)
  if(NOT CMAKE_UNITY_BUILD OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")  # fuzzers add one to some rooms, which clang refuses
    return()
  endif()
  if(NOT target STREQUAL "distattn_text")
    target_precompile_headers(${target} REUSE_FROM distattn_text)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring>
    <filesystem> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view>
    <thread> <tuple> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
endfunction()

function(distattn_warnings target)
  # Files that are compiled together share their unnamed namespaces; builds that compile them apart look for shadows.
  set(apart "$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>")
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,${apart}>:-Wshadow>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(DISTATTN_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
      $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
endfunction()

# For what takes longer to compile than optimisation ever saves: a third less with g++ 12. Under sanitizers, where clang
# optimises the rest, half.
function(distattn_compile_fast target)
  # nvcc warns where it is told twice how to optimise.
  target_compile_options(${target} PRIVATE
    "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:$<$<CONFIG:Release>:-O1>$<$<CONFIG:Debug>:-O0>>")
endfunction()

# What rooms link apart from each other and from packages of headers alone.
function(distattn_outside_links out)
  set(links "")
  foreach(room IN LISTS ARGN)
    get_target_property(items ${room} LINK_LIBRARIES)
    foreach(item IN LISTS items)
      if(item AND NOT item MATCHES "^distattn_|^nlohmann_json::")
        list(APPEND links "${item}")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES links)
  set(${out} "${links}" PARENT_SCOPE)
endfunction()

# The library proper, and distattn_rooms: what tests link.
function(distattn_assemble_library)
  get_property(rooms GLOBAL PROPERTY DISTATTN_ROOMS)
  add_library(distattn_rooms INTERFACE)
  target_include_directories(distattn_rooms INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/core/include")
  target_link_libraries(distattn_rooms INTERFACE ${rooms})
  # Objects do not travel through a library that is linked, as what they need does.
  foreach(room IN LISTS rooms)
    target_sources(distattn_rooms INTERFACE "$<TARGET_OBJECTS:${room}>")
  endforeach()

  add_library(distattn)
  add_library(distattn::distattn ALIAS distattn)
  foreach(room IN LISTS rooms)
    target_sources(distattn PRIVATE "$<TARGET_OBJECTS:${room}>")
  endforeach()
  # Rooms themselves are not linked: an installed static library could not name them.
  distattn_outside_links(links ${rooms})
  target_link_libraries(distattn PRIVATE ${links})
  target_include_directories(distattn PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include>")
  target_compile_features(distattn PUBLIC cxx_std_20)
  if(BUILD_SHARED_LIBS)
    # A program that unloads it, as one that was a plugin's, keeps it: threads, what runs at exit and what Kokkos calls
    # when it is finalized are in it.
    target_link_options(distattn PRIVATE "LINKER:-z,nodelete")
    # Packages of static libraries stay its own: a program may have another version of Kokkos or of fmt.
    target_link_options(distattn PRIVATE "LINKER:--exclude-libs,ALL")
  endif()
  set_target_properties(distattn PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX)
endfunction()

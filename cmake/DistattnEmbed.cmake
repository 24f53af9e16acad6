# distattn_embed(<target> <header> <namespace> <folder>...): the .json files and parts of pages (.html, .css, .js) under
# the folders become part of <target>, found by their path relative to their folder, that of .json files without the
# ending, through <namespace>::embedded_files(), which <header> declares.
function(distattn_embed target header namespace)
  set(entries "")
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${folder}"
      "${folder}/*.json" "${folder}/*.html" "${folder}/*.css" "${folder}/*.js")
    list(SORT files)
    foreach(file IN LISTS files)
      file(READ "${folder}/${file}" text)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/${file}")
      string(REGEX REPLACE "\\.json$" "" name "${file}")
      string(APPEND entries "    {\"${name}\", R\"distattn(${text})distattn\"},\n")
    endforeach()
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/embedded_data.cpp")
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT [[
#include "@header@"

namespace @namespace@ {

std::span<const EmbeddedFile> embedded_files() {
  static constexpr EmbeddedFile files[] = {
@entries@  };
  return files;
}

}  // namespace @namespace@
]])
  target_sources(${target} PRIVATE "${source}")
  # clang warns of literals longer than every compiler takes; those of today take more.
  set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
endfunction()

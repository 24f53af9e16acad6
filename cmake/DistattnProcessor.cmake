# What this processor has. A test holds it against what the library finds at run time.

# distattn_processor_has(<out> <flag>...): all of them, of those that the kernel of the operating system lists.
function(distattn_processor_has out)
  set(flags "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    separate_arguments(flags)
  endif()
  list(REMOVE_ITEM ARGN ${flags})
  string(COMPARE EQUAL "${ARGN}" "" has)
  set(${out} ${has} PARENT_SCOPE)
endfunction()

# distattn_native_sets(<out>): instruction sets of the CPU kernels that it would use: the widest vectors, and what
# multiplies pairs of bf16.
function(distattn_native_sets out)
  distattn_processor_has(avx2 avx2 fma bmi1 bmi2)
  distattn_processor_has(avx512 avx512f avx512bw avx512cd avx512dq avx512vl)
  distattn_processor_has(avx512_bf16 avx512_bf16)
  distattn_processor_has(amx amx_tile amx_bf16)
  set(sets generic)
  if(avx512)
    set(sets avx512)
    foreach(pairs IN ITEMS avx512_bf16 amx)
      if(${pairs})
        list(APPEND sets ${pairs})
      endif()
    endforeach()
  elseif(avx2)
    set(sets avx2)
  endif()
  set(${out} ${sets} PARENT_SCOPE)
endfunction()

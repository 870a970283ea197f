# lockstep_warnings(target): the project's warnings, sanitizers and coverage. Never -Ofast, -ffast-math or --use_fast_math.
function(lockstep_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wpedantic -Wmissing-prototypes>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wpedantic>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>) # nvcc's host pass is no pedantic C++
  # contraction off: whether a*b+c is fused would otherwise depend on the machine that built it
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>)
  if(LOCKSTEP_WERROR)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
  endif()
  if(LOCKSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer>
      # instrumentation misleads gcc's warnings that follow values; the other builds have them
      $<$<COMPILE_LANGUAGE:C,CXX>:-Wno-array-bounds -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-format-truncation>)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
  if(LOCKSTEP_FUZZERS) # C alone: the emulator's C++ is gcc's
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer>)
    target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:__SANITIZE_ADDRESS__=1>) # gcc says so by itself
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
  if(LOCKSTEP_COVERAGE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:--coverage -fprofile-update=atomic>)
    target_link_options(${target} PUBLIC --coverage -Wl,--wrap=_exit) # cmake/coverage_exit.c
  endif()
endfunction()

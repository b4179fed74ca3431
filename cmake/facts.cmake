# Run on every build (target build_facts): writes build_facts.h, and only when a fact changed, so that one small file is compiled again.
# -DOUT= -DSOURCE= -DVERSION= -DTORCH= -DCUDA=
cmake_policy(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=10 HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(commit "unknown (not a git checkout)")
else()
  execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD -- src RESULT_VARIABLE changed ERROR_QUIET)
  if(changed)
    string(APPEND commit " with local changes")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT "// Written by cmake/facts.cmake.
#pragma once

namespace build_facts {
inline constexpr const char* version = \"@VERSION@\";
inline constexpr const char* commit = \"@commit@\";
inline constexpr const char* torch = \"@TORCH@\";
inline constexpr const char* cuda = \"@CUDA@\";
}  // namespace build_facts
")

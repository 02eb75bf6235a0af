# Helpers that give every Baton target the same warnings, sanitizers and include root.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -fno-omit-frame-pointer")  # BATON_CHECK and asserts of our own stay on
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")

add_library(baton_options INTERFACE)
target_include_directories(baton_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(baton_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow
                       -Wno-missing-field-initializers)  # designated initializers leave the rest at their defaults
if(BATON_WERROR)
  target_compile_options(baton_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside the standard library and Abseil when it inlines deeply.
  target_compile_options(baton_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict
                         -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()
if(BATON_SANITIZE)
  target_compile_options(baton_options INTERFACE -fsanitize=${BATON_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(baton_options INTERFACE -fsanitize=${BATON_SANITIZE})
endif()
if(BATON_SANITIZE MATCHES "thread")
  include(${CMAKE_CURRENT_LIST_DIR}/tsan/tsan_mutex.cmake)
endif()
if(BATON_FUZZ)
  target_compile_options(baton_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# baton_library(NAME SOURCES a.cc ... [DEPS PUBLIC x PRIVATE y]): library baton_NAME, alias baton::NAME.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(baton_${name} STATIC ${ARG_SOURCES})
  add_library(baton::${name} ALIAS baton_${name})
  target_link_libraries(baton_${name} PUBLIC baton_options)
  if(ARG_DEPS)
    target_link_libraries(baton_${name} ${ARG_DEPS})
  endif()
endfunction()

# baton_test(NAME SOURCES a_test.cc ... DEPS baton::x ...): one GoogleTest binary, one ctest entry per case.
#   LABELS l1 l2 (default: unit), TIMEOUT seconds for one case (default 120).
# Golden data: BATON_GOLDEN_DIR, default tests/golden. Models: BATON_MODELS_DIR, default models.
function(baton_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(BATON_FUZZ)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name} PRIVATE BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # Labels are set when ctest reads the discovered cases: among PROPERTIES a list would lose all but
  # its first element.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels_file}
    "if(${name}_TESTS)\n"
    "  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABELS}\")\n"
    "endif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

# baton_fuzzer(NAME SOURCES f.cc DEPS ...): a libFuzzer binary in the fuzz preset; nothing elsewhere.
function(baton_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT BATON_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE baton_options ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_compile_definitions(${name} PRIVATE BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

include(GoogleTest)

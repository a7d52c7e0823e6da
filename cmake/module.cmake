# The native module `pyddpdiag._native`, built against the torch that the building Python imports.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

# torch's own answer, and not a search: its headers, its libraries and its pybind11 must be of one build.
execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "import pathlib, torch; r = pathlib.Path(torch.__file__).parent; print(r.as_posix(), torch.__version__, '.'.join(torch.__version__.split('.')[:2]), int(torch.compiled_with_cxx11_abi()), sep=';')"
  OUTPUT_VARIABLE torch_facts
  ERROR_VARIABLE torch_error
  RESULT_VARIABLE torch_missing
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(torch_missing)
  message(FATAL_ERROR "pyddpdiag is built against an installed torch, and ${Python_EXECUTABLE} cannot import one. "
                      "Install torch (2.11 or newer) and build with 'pip install --no-build-isolation'.\n${torch_error}")
endif()
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 torch_version)
list(GET torch_facts 2 torch_minor)
list(GET torch_facts 3 torch_cxx11_abi)
if(torch_minor VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${torch_version} is too old: pyddpdiag needs 2.11 or newer.")
endif()
if(NOT EXISTS ${torch_root}/include/pybind11/pybind11.h)
  message(FATAL_ERROR "${torch_root}/include has no pybind11: the module must share torch's copy, or ProcessGroup "
                      "arguments fail with TypeError. Reinstall torch from a wheel.")
endif()
message(STATUS "torch ${torch_version} at ${torch_root}")

Python_add_library(
  _native MODULE WITH_SOABI
  ${PROJECT_SOURCE_DIR}/csrc/python/module.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_build.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_flatten.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_recorder.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_sockets.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/average.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/backward_pass.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/backward_probe.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/bucket_exchange.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/bucket_flight.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/bucket_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/bucket_operation.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/bucket_start.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/compressed_bucket.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/foreign_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/gradient_watch.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/flatten.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/flatten_checks.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/parallel_copy.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/process_group.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/recorder.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduction.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/start_signal.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/worker_probe.cpp)
target_link_libraries(_native PRIVATE ddpdiag_core)
# SYSTEM: our warnings are for our code.
target_include_directories(_native SYSTEM PRIVATE ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_include_directories(_native PRIVATE ${PROJECT_SOURCE_DIR}/csrc)
find_library(torch_python_library torch_python PATHS ${torch_root}/lib NO_CACHE NO_DEFAULT_PATH REQUIRED)
find_library(torch_cpu_library torch_cpu PATHS ${torch_root}/lib NO_CACHE NO_DEFAULT_PATH REQUIRED)
find_library(c10_library c10 PATHS ${torch_root}/lib NO_CACHE NO_DEFAULT_PATH REQUIRED)
target_link_libraries(_native PRIVATE ${torch_python_library} ${torch_cpu_library} ${c10_library})
target_compile_definitions(
  _native
  PRIVATE USE_DISTRIBUTED USE_C10D_GLOO TORCH_EXTENSION_NAME=_native
          PYDDPDIAG_TORCH_VERSION="${torch_version}" PYDDPDIAG_TORCH_MINOR="${torch_minor}"
          PYDDPDIAG_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
          PYDDPDIAG_BUILD_TYPE="$<CONFIG>")
if(NOT MSVC)
  target_compile_definitions(_native PRIVATE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi})
endif()
pyddpdiag_options(_native)
# at::parallel_for is a template: without OpenMP in our own compiler it is a plain loop. No OpenMP library is linked:
# the names are found in torch's, so that its threads are used and torch.set_num_threads holds.
if(MSVC)
  set(openmp_option /openmp)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(openmp_option -fopenmp)
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/csrc/torch/parallel_copy.cpp
                            PROPERTIES COMPILE_OPTIONS "${openmp_option}")
# torch is imported first and brings its libraries; the rpath serves tools that load the module alone.
set_target_properties(_native PROPERTIES INSTALL_RPATH "$<IF:$<PLATFORM_ID:Darwin>,@loader_path,$ORIGIN>/../torch/lib"
                                         BUILD_WITH_INSTALL_RPATH ON)
# Read before the module is loaded: under another torch it might not load, or crash.
configure_file(${PROJECT_SOURCE_DIR}/cmake/_build.py.in ${CMAKE_CURRENT_BINARY_DIR}/_build.py @ONLY)
install(TARGETS _native DESTINATION pyddpdiag)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_build.py DESTINATION pyddpdiag)

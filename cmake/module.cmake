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
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_calls.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_flatten.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_groups.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_lanes.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_quick.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_recorder.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_shared.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_sockets.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/bind_stacks.cpp
  ${PROJECT_SOURCE_DIR}/csrc/python/stack_looks.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/flatten/flatten.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/flatten/flatten_checks.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/flatten/parallel_copy.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/group.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/detached.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/ddp_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/in_flight.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/foreign_hook.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/hook_of_module.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/plain_ddp.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/reducer_parts.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/reduction.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/run_bucket.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/hook/uneven.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/backward_pass.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/backward_probe.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/bucket_operation.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/bucket_start.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/finite_watch.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/gradient_watch.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/module_identity.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/operation_pool.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/recorder.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/start_signal.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/values_mark.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/weights_watch.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/worker_group.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/probe/worker_probe.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/average.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/choose_path.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/collectives.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/future_work.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/lanes/lanes.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/lanes/parts.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/lanes/path.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/messages.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/pinning.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/plain_path.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/shared/gloo_between.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/shared/path.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/shared/place.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/shared/ranks.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/shared/storage.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/sixteen_bit/exchange.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/sixteen_bit/path.cpp
  ${PROJECT_SOURCE_DIR}/csrc/torch/reduce/staging.cpp)
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
if(MSVC)
  # Bindings and templates of many files make more sections than an object file has by default.
  target_compile_options(_native PRIVATE /bigobj)
endif()
if(PYDDPDIAG_UNITY)
  # Reading torch's headers is most of the work, so they are read twice and not once per file. Twice: for two cores.
  get_target_property(sources _native SOURCES)
  list(LENGTH sources count)
  math(EXPR half "(${count} + 1) / 2")
  set_target_properties(_native PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${half})
endif()
# torch is imported first and brings its libraries; the rpath serves tools that load the module alone.
set_target_properties(_native PROPERTIES INSTALL_RPATH "$<IF:$<PLATFORM_ID:Darwin>,@loader_path,$ORIGIN>/../torch/lib"
                                         BUILD_WITH_INSTALL_RPATH ON)
# Read before the module is loaded: under another torch it might not load, or crash.
configure_file(${PROJECT_SOURCE_DIR}/cmake/_build.py.in ${CMAKE_CURRENT_BINARY_DIR}/_build.py @ONLY)
install(TARGETS _native DESTINATION pyddpdiag)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_build.py DESTINATION pyddpdiag)
# For `pyddpdiag help PAGE`.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION pyddpdiag/docs FILES_MATCHING PATTERN "*.md"
        PATTERN "images" EXCLUDE PATTERN "_static" EXCLUDE PATTERN "reference" EXCLUDE)

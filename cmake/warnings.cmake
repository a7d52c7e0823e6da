# One place for warnings and sanitizers: `pyddpdiag_options(target)`.
function(pyddpdiag_options target)
  if(MSVC)
    # 4324: padding is what alignas is there for. 4127: a condition of a template's arguments is constant.
    target_compile_options(
      ${target} PRIVATE /W4 /wd4324 /wd4127 /permissive- /utf-8 $<$<BOOL:${PYDDPDIAG_WERROR}>:/WX>)
    target_compile_definitions(${target} PRIVATE NOMINMAX WIN32_LEAN_AND_MEAN)
  else()
    target_compile_options(
      ${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
                        $<$<BOOL:${PYDDPDIAG_WERROR}>:-Werror>)
  endif()
  if(PYDDPDIAG_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${PYDDPDIAG_SANITIZE} -fno-omit-frame-pointer -g)
    target_link_options(${target} PRIVATE -fsanitize=${PYDDPDIAG_SANITIZE})
    if(PYDDPDIAG_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC says that ThreadSanitizer doesn't model fences; every access they order is atomic by itself.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
endfunction()

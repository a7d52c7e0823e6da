// Included before everything else when a Windows torch's headers are read with mingw-w64: what the Microsoft
// compiler has, or has not, and mingw's headers see otherwise.
#pragma once

// c10/macros/Macros.h takes every compiler but Microsoft's for one whose C library has glibc's assertion.
extern "C" [[noreturn]] void __assert_fail(
    const char* assertion, const char* file, unsigned int line, const char* function);

// torch defines inline members in classes that it imports. Microsoft's compiler takes that, GCC calls it an
// error; what is imported is checked otherwise, by tools/windows_exports.py.
#include <torch/headeronly/macros/Export.h>
#undef C10_IMPORT
#define C10_IMPORT

# Whether the Windows SDK has what csrc/platform/windows_sockets.cpp reads: an older one would fail in the middle of it.
include(CheckCXXSourceCompiles)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
check_cxx_source_compiles(
  "#undef NTDDI_VERSION
   #undef _WIN32_WINNT
   #define _WIN32_WINNT 0x0A00
   #define NTDDI_VERSION 0x0A000006
   #include <winsock2.h>
   #include <ws2tcpip.h>
   #include <mstcpip.h>
   TCP_INFO_v1 readings;"
  PYDDPDIAG_HAS_TCP_INFO_V1)
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
if(NOT PYDDPDIAG_HAS_TCP_INFO_V1)
  message(FATAL_ERROR "pyddpdiag needs the Windows SDK 10.0.17763 or newer (TCP_INFO_v1 of mstcpip.h), and this is "
                      "version '${CMAKE_VS_WINDOWS_TARGET_PLATFORM_VERSION}$ENV{WindowsSDKVersion}'. Install a newer one "
                      "with the Visual Studio Installer, open a new developer command prompt, and remove the build folder.")
endif()

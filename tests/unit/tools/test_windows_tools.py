"""The tools that check for Windows from elsewhere: what they read out of DLLs and make of signatures."""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path

import pytest
from support.commands import ran
from support.promised import need

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import libcxx
import windows_exports
import windows_syntax
from windows_torch import CannotCheckError

ROOT = Path(__file__).resolve().parents[3]


def dll(*names: str) -> bytes:
    """The least of a 64-bit DLL that exports `names`: headers, one section, an export directory in it."""
    section_address, section_offset = 0x1000, 0x200
    pointers = section_address + 40
    strings = pointers + 4 * len(names)
    table, text = b"", b""
    for name in names:
        table += struct.pack("<I", strings + len(text))
        text += name.encode() + b"\0"
    directory = struct.pack("<24xIII4x", len(names), 0, pointers)
    section = directory + table + text
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    coff = b"PE\0\0" + struct.pack("<HH12xHH", 0x8664, 1, 240, 0)
    optional = struct.pack("<H110xII", 0x20B, section_address, len(section)).ljust(240, b"\0")
    entry = struct.pack("<8sIIII16x", b".rdata", len(section), section_address, len(section), section_offset)
    return (head + coff + optional + entry).ljust(section_offset, b"\0") + section


def test_exports_of_a_dll(tmp_path: Path) -> None:
    file = tmp_path / "a.dll"
    file.write_bytes(dll("?one@@YAXXZ", "two"))
    assert list(windows_exports.exports(file)) == ["?one@@YAXXZ", "two"]


def test_what_is_no_dll_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.dll"
    file.write_bytes(b"\x7fELF" + bytes(200))
    with pytest.raises(SystemExit, match="not a 64-bit DLL"):
        list(windows_exports.exports(file))


@pytest.mark.parametrize(
    ("microsoft", "gnu"),
    [
        (
            "public: static bool __cdecl c10::impl::Modes::any_modes_set(bool)",
            "c10::impl::Modes::any_modes_set(bool)",
        ),
        ("int __cdecl torch::autograd::get_task_id(void)", "torch::autograd::get_task_id()"),
        ("void __cdecl at::reenableCallback(unsigned __int64)", "at::reenableCallback(unsigned long long)"),
        (
            "public: void __cdecl A::queue_callback(class std::function<void __cdecl(void)>)",
            "A::queue_callback(std::function<void ()>)",
        ),
        (
            "class std::basic_ostream<char, struct std::char_traits<char>> & __cdecl c10::operator<<("
            "class std::basic_ostream<char, struct std::char_traits<char>> &, enum c10::DeviceType)",
            "c10::operator<<(std::basic_ostream<char, std::char_traits<char> >&, c10::DeviceType)",
        ),
        (
            "public: __cdecl c10::Device::Device(class std::basic_string<char, struct std::char_traits<char>, "
            "class std::allocator<char>> const &)",
            "c10::Device::Device(std::__cxx11::basic_string<char, std::char_traits<char>, "
            "std::allocator<char> > const&)",
        ),
        (
            "class std::array<struct std::atomic<struct c10::impl::Guard const *>, 21> c10::impl::registry",
            "c10::impl::registry",
        ),
        ("const c10::Error::`vftable'", "vtable for c10::Error"),
        (
            "public: virtual class std::shared_ptr<struct A> const & __cdecl at::T::grad_fn(void) const",
            "at::T::grad_fn() const",
        ),
    ],
)
def test_both_manglings_give_one_signature(microsoft: str, gnu: str) -> None:
    assert windows_exports.signature(microsoft) == windows_exports.signature(gnu)


def test_overloads_are_distinguished() -> None:
    available = {windows_exports.signature("void __cdecl at::f(int)"): "c10.dll"}
    result = windows_exports.audit(
        ["at::f(int)", "at::f(bool)", "at::g()", "at::h()", "typeinfo for at::A"],
        available,
        {"at::h()": "never called"},
    )
    assert result["at::f(int)"] == "c10.dll"
    assert result["at::f(bool)"].startswith("MISSING") and "at::f(int)" in result["at::f(bool)"]
    assert result["at::g()"].startswith("MISSING")
    assert result["at::h()"] == "allowed: never called"
    assert result["typeinfo for at::A"] == "header-only"


def test_macros_are_those_of_the_build() -> None:
    found = windows_syntax.definitions("2.12.1")
    assert {"-DUSE_DISTRIBUTED", "-DUSE_C10D_GLOO", "-DNOMINMAX", '-DPYDDPDIAG_TORCH_MINOR="2.12"'} <= set(
        found
    )
    assert all(text.startswith("-D") and "{" not in text for text in found)


def test_every_file_of_the_native_module_is_compiled_for_windows() -> None:
    listed = re.findall(r"csrc/(\S+\.cpp)", (ROOT / "cmake" / "module.cmake").read_text(encoding="utf-8"))
    checked = [p.relative_to(ROOT / "csrc").as_posix() for p in windows_syntax.native_sources()]
    assert len(checked) > 20 and sorted(listed) == sorted(checked)


@pytest.mark.parametrize(("begin", "compiles"), [("text.data()", False), ("text.begin()", True)])
def test_what_takes_an_iterator_for_a_pointer_does_not_compile_with_libcxx(
    tmp_path: Path, begin: str, compiles: bool
) -> None:
    source = tmp_path / "text.cpp"
    source.write_text(
        "#include <algorithm>\n#include <array>\n#include <string>\n"
        f"std::string f(std::array<char, 9> text) {{ return {{{begin}, std::ranges::find(text, 'x')}}; }}\n",
        encoding="utf-8",
    )
    try:
        compiler, refused = libcxx.compiler(), ""
    except CannotCheckError as error:
        compiler, refused = "", str(error)
    need("libcxx", refused)
    command = [compiler, "-std=c++20", *libcxx.flags(), "-fsyntax-only", str(source)]
    done = ran(*command)
    assert (done.returncode == 0) == compiles, done.stderr


def test_the_newest_clang_is_tried_first_after_the_systems_own(tmp_path: Path) -> None:
    for name in ("clang++-9", "clang++-20", "clang++-19", "clang-20", "clang++-20.exe"):
        (tmp_path / name).touch()
    found = libcxx.candidates(os.pathsep.join((str(tmp_path), str(tmp_path / "nowhere"))))
    assert found == ["clang++", "clang++-20", "clang++-19", "clang++-9"]

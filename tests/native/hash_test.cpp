#include "core/trace/hash.hpp"

#include <cstdint>
#include <string_view>

#include "check.hpp"

namespace {
using ddpdiag::Fnv1a;
using ddpdiag::fnv1a;
}  // namespace

CASE("the published FNV-1a vectors") {
    CHECK_EQ(fnv1a(""), 0xcbf29ce484222325ULL);
    CHECK_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cULL);
    CHECK_EQ(fnv1a("b"), 0xaf63df4c8601f1a5ULL);
    CHECK_EQ(fnv1a("foobar"), 0x85944171f73967e8ULL);
}

CASE("bytes past 127 and zero bytes count as unsigned ones") {
    CHECK_EQ(fnv1a("\xff"), (0xcbf29ce484222325ULL ^ 0xffULL) * 0x100000001b3ULL);
    CHECK_EQ(fnv1a(std::string_view("\0", 1)), 0xcbf29ce484222325ULL * 0x100000001b3ULL);
}

CASE("a number is its four bytes, lowest first, on every system") {
    const std::uint32_t number = 0x04030201;
    CHECK_EQ(Fnv1a{}.add(number).value(), fnv1a("\x01\x02\x03\x04"));
    CHECK_EQ(Fnv1a{}.add(std::uint32_t{0}).value(), fnv1a(std::string_view("\0\0\0\0", 4)));
}

CASE("adding in pieces is adding the whole") {
    CHECK_EQ(Fnv1a{}.add("foo").add("bar").value(), fnv1a("foobar"));
    CHECK_EQ(Fnv1a{}.add("").add("foobar").add("").value(), fnv1a("foobar"));
}

CASE("it can be computed by the compiler") {
    static_assert(fnv1a("foobar") == 0x85944171f73967e8ULL);
    CHECK(fnv1a("gloo:all_reduce") != fnv1a("gloo:broadcast"));
}

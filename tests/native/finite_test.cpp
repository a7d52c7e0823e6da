#include "core/kernels/finite.hpp"

#include <limits>
#include <vector>

#include "check.hpp"

using ddpdiag::finite_lines;
using ddpdiag::SearchedPart;

namespace {

constexpr auto not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

CASE("a row or a column of NaN is found in every pass, however little is searched") {
    for (const std::size_t width : {256U, 384U, 448U, 512U, 1000U}) {
        for (std::uint32_t pass = 0; pass < 32; ++pass) {
            std::vector<float> rows(512 * width);
            std::vector<float> columns(512 * width);
            for (std::size_t i = 0; i < 512; ++i) {
                columns[i * width + 17] = not_a_number;
                rows[100 * width + i % width] = not_a_number;
            }
            CHECK(!finite_lines(rows.data(), rows.size(), SearchedPart::least, pass));
            CHECK(!finite_lines(columns.data(), columns.size(), SearchedPart::least, pass));
        }
    }
}

CASE("a single infinity is found where all is searched, else in some pass, and nothing where there is none") {
    std::vector<double> values(10'007);
    for (const std::size_t place : {0U, 5'000U, 10'006U}) {
        CHECK(finite_lines(values.data(), values.size(), 1, 0));
        CHECK(finite_lines(values.data(), values.size(), 16, 3));
        values[place] = -std::numeric_limits<double>::infinity();
        CHECK(!finite_lines(values.data(), values.size(), 1, 0));
        int found = 0;
        for (std::uint32_t pass = 0; pass < 400; ++pass) {
            found += finite_lines(values.data(), values.size(), 16, pass) ? 0 : 1;
        }
        CHECK(found > 0);
        values[place] = 0;
    }
}

CASE("less is searched where all of it would take too much of a step, and all again where it does not") {
    SearchedPart part;
    std::int64_t now = 1;
    part.begin_pass(now);
    CHECK_EQ(part.every(), 1U);
    part.took(8'000);
    part.begin_pass(now += 4'000'000);  // as much as it may
    CHECK_EQ(part.every(), 1U);
    part.took(8'000);
    part.begin_pass(now += 1'000'000);
    CHECK_EQ(part.every(), 4U);
    part.begin_pass(now += 1'000'000);  // nothing was searched
    CHECK_EQ(part.every(), 4U);
    part.took(100'000);
    part.begin_pass(now += 1'000'000);
    CHECK_EQ(part.every(), SearchedPart::least);
    part.took(1'000);
    part.begin_pass(now += 16'000'000);
    CHECK_EQ(part.every(), 1U);
}

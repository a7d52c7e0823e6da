// A test header of our own: the core's tests need a compiler and nothing else, also offline and for Windows, where no package
// has a framework. And doctest cannot skip a case from within, with the reason, which tools/compare_cases.py lists (2.4.9).
//
//     CASE("an empty ring has no records") { CHECK_EQ(ring.size(), 0U); }
//
// CHECK, CHECK_EQ and CHECK_THROWS note a failure and go on, from any thread; REQUIRE and SKIP end the case (on
// the case's own thread only). A test program takes --list, or a part of a case's name, or nothing for all cases.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace check {

using Body = void (*)();

struct Case {
    Case(const char* name, Body body);
};

// Ends the running case; its message has been noted already.
struct Ended : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Ends a case that this machine cannot run; it is listed with the reason.
struct Skipped : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void note_failure(const char* file, int line, const std::string& message);

[[noreturn]] inline void end_case(const char* file, int line, const char* what) {
    note_failure(file, line, what);
    throw Ended(what);
}

template <typename Value>
std::string show(const Value& value) {
    std::ostringstream text;
    if constexpr (std::is_enum_v<Value>) {
        text << +static_cast<std::underlying_type_t<Value>>(value);
    } else if constexpr (std::is_integral_v<Value> && sizeof(Value) == 1) {
        text << +value;
    } else {
        text << value;
    }
    return text.str();
}

template <typename Left, typename Right>
void equal(const char* file, int line, const char* what, const Left& left, const Right& right) {
    if (!(left == right)) {
        note_failure(file, line, std::string(what) + ": " + show(left) + " is not " + show(right));
    }
}

}  // namespace check

#define CHECK_JOIN_(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN_(a, b)

#define CASE(name)                                                                                  \
    static void CHECK_JOIN(case_, __LINE__)();                                                      \
    static const check::Case CHECK_JOIN(registered_, __LINE__){name, &CHECK_JOIN(case_, __LINE__)}; \
    static void CHECK_JOIN(case_, __LINE__)()

#define CHECK(condition) \
    (static_cast<bool>(condition) ? void() : check::note_failure(__FILE__, __LINE__, #condition))

#define REQUIRE(condition) \
    (static_cast<bool>(condition) ? void() : check::end_case(__FILE__, __LINE__, #condition))

#define SKIP(reason) throw check::Skipped(reason)

#define CHECK_EQ(left, right) check::equal(__FILE__, __LINE__, #left " == " #right, left, right)

// Runs `statement`, expects `Type` or a class derived from it, and gives the exception to `inspect`.
#define CHECK_THROWS_WITH(Type, statement, inspect)                                                \
    do {                                                                                           \
        bool thrown_ = false;                                                                      \
        try {                                                                                      \
            statement;                                                                             \
        } catch (const Type& error_) {                                                             \
            thrown_ = true;                                                                        \
            inspect(error_);                                                                       \
        } catch (const std::exception& other_) {                                                   \
            thrown_ = true;                                                                        \
            check::note_failure(                                                                   \
                __FILE__, __LINE__,                                                                \
                std::string(#statement " threw something else than " #Type ": ") + other_.what()); \
        }                                                                                          \
        if (!thrown_) {                                                                            \
            check::note_failure(__FILE__, __LINE__, #statement " did not throw " #Type);           \
        }                                                                                          \
    } while (false)

#define CHECK_THROWS(Type, statement) CHECK_THROWS_WITH(Type, statement, [](const Type&) {})

// A folder of its own for one test case, gone with it.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <system_error>

#include "platform/platform.hpp"

class Scratch {
public:
    Scratch() : path_(unique_path()) { std::filesystem::create_directories(path_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }

private:
    static std::filesystem::path unique_path() {
        static std::atomic<unsigned> next{0};
        return std::filesystem::temp_directory_path() /
               ("pyddpdiag-" + std::to_string(ddpdiag::platform::process_id()) + "-" +
                std::to_string(ddpdiag::platform::wall_ns()) + "-" + std::to_string(next++));
    }
    std::filesystem::path path_;
};

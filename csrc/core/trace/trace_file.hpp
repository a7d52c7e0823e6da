// The ring of records in a memory-mapped file: lock-free to write, readable by other processes at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/trace/header.hpp"
#include "core/trace/mapping_users.hpp"
#include "core/trace/record.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {

struct TraceOptions {
    std::uint32_t rank = 0;
    std::uint32_t world_size = 1;
    std::array<std::uint8_t, 16> run_id{};
    std::size_t capacity_bytes = std::size_t{32} << 20U;
    platform::IfExists if_exists = platform::IfExists::refuse;
};

struct TraceCounters {
    std::uint64_t tickets = 0;
    std::uint64_t overwritten = 0;
    std::uint64_t skipped = 0;
    std::uint64_t dropped = 0;
};

class TraceFile;

// While it lives, and is not false, the file stays mapped.
class TraceVisit {
public:
    explicit TraceVisit(const TraceFile* trace) noexcept;
    // Of an operation, which may have ended.
    [[nodiscard]] static TraceVisit of_operation(const TraceFile* trace) noexcept;
    TraceVisit(TraceVisit&& other) noexcept
        : trace_(std::exchange(other.trace_, nullptr)), free_(other.free_) {}
    TraceVisit(const TraceVisit&) = delete;
    TraceVisit& operator=(const TraceVisit&) = delete;
    TraceVisit& operator=(TraceVisit&&) = delete;
    ~TraceVisit();
    [[nodiscard]] explicit operator bool() const noexcept { return free_ || trace_ != nullptr; }

private:
    TraceVisit() noexcept : free_(true) {}
    const TraceFile* trace_ = nullptr;
    bool free_ = false;
};

// A record in flight: published, its slot kept until complete(), and with it the file. Cheap to copy; any thread may
// stamp it, also when it is complete. An empty operation (no free slot was found) accepts every call and does nothing.
class Operation {
public:
    Operation() = default;

    [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }
    [[nodiscard]] std::uint64_t ticket() const noexcept { return ticket_; }

    // Each is one aligned store that a live reader may see at once.
    void stamp(std::size_t which, std::int64_t monotonic_ns) const noexcept;
    void set_flags(std::uint32_t flags) const noexcept;

    // The last store; the slot may be reused afterwards. Only the first call has an effect.
    void complete() const noexcept;

private:
    friend class TraceFile;
    Operation(TraceFile* trace, Record* record, std::uint64_t ticket) noexcept
        : trace_(trace), record_(record), ticket_(ticket) {}
    TraceFile* trace_ = nullptr;
    Record* record_ = nullptr;
    std::uint64_t ticket_ = 0;
};

class TraceFile {
public:
    // Throws platform::SystemError, or std::invalid_argument for a capacity that cannot be right.
    TraceFile(const std::filesystem::path& path, const TraceOptions& options);

    // Publishes `record` (its word is set here) as in flight, to be stamped and completed later.
    Operation open(const Record& record) noexcept;

    // Publishes `record` as complete. False if no slot was free.
    bool write(const Record& record) noexcept;

    // Publishes an error's text as the records that follow `operation`.
    void write_error(const Record& operation, std::uint64_t ticket, std::string_view text) noexcept;

    // Tells whoever reads the file that this process runs.
    void beat(std::int64_t monotonic_ns) noexcept;

    // Marks the file as properly closed.
    void mark_closed() noexcept;

    // Gives the file up as soon as no record is in flight. What comes later is dropped.
    void close() noexcept;

    // Notes how the process ends; the first call counts. Also when the file was given up, if it is still there.
    void mark_ended(ProcessEnd how) noexcept;

    // Whether somebody has cut the file short or overwritten it. The ring keeps working; its new records are
    // lost.
    [[nodiscard]] bool lost() const noexcept;

    // Whether this is a forked child's copy of its parent's trace: new records stay in the child.
    [[nodiscard]] bool inherited() const noexcept {
        return file_.state() == platform::MappingState::inherited;
    }

    [[nodiscard]] TraceCounters counters() const noexcept;
    [[nodiscard]] std::size_t capacity() const noexcept { return records_.size(); }
    // The header as it was when the file was created; without the live counters.
    [[nodiscard]] const Header& header() const noexcept { return made_; }

    // A consistent copy of slot `index`, or nothing if it is unused or being written.
    [[nodiscard]] std::optional<Record> read(std::size_t index) const noexcept;

private:
    friend class Operation;
    friend class TraceVisit;
    struct Claim {
        Record* record;
        std::uint64_t ticket;
    };
    std::optional<Claim> claim() noexcept;
    void leave() const noexcept;
    void give_up() const noexcept;
    void mark_ended_in_file(std::uint64_t how) const noexcept;
    [[nodiscard]] TraceCounters counted() const noexcept;
    [[nodiscard]] bool is_ours(const Header& header) const noexcept;

    // Whoever looks may be the last to leave: mutable for those that only read.
    mutable platform::MappedFile file_;
    mutable MappingUsers users_;
    mutable TraceCounters last_counters_;
    mutable std::atomic<bool> given_up_{false};
    std::filesystem::path path_;
    Header* header_ = nullptr;
    Header made_{};
    std::span<Record> records_;
};

}  // namespace ddpdiag

#include "core/trace/trace_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

namespace ddpdiag {
namespace {

constexpr std::size_t min_capacity_bytes = std::size_t{64} << 10U;
constexpr std::size_t max_capacity_bytes = std::size_t{1} << 36U;
constexpr std::size_t max_error_parts = 16;
// Few slots are in flight (buckets of one backward pass); after this many busy ones in a row the ring is
// full.
constexpr int max_claim_tries = 1024;

constexpr std::uint64_t word_of(std::uint64_t ticket, SlotState state) {
    return ((ticket + 1) << 2U) | static_cast<std::uint64_t>(state);
}

constexpr SlotState state_of(std::uint64_t word) {
    return static_cast<SlotState>(word & 3U);
}

std::atomic_ref<std::uint64_t> word_ref(Record& record) {
    return std::atomic_ref<std::uint64_t>(record.word);
}

// The record's fields except its word, each moved atomically: a reader in this process may look at any time,
// and discards its copy if the word has changed meanwhile.
constexpr std::size_t body_words = sizeof(Record) / sizeof(std::uint64_t) - 1;

std::uint64_t* body_of(Record& record) {
    return reinterpret_cast<std::uint64_t*>(&record) + 1;
}

void store_body(Record& target, const Record& source) noexcept {
    std::array<std::uint64_t, body_words + 1> words{};
    std::memcpy(words.data(), &source, sizeof(Record));
    std::uint64_t* body = body_of(target);
    for (std::size_t i = 0; i < body_words; ++i) {
        std::atomic_ref(body[i]).store(words[i + 1], std::memory_order_relaxed);
    }
}

template <std::size_t size>
void copy_text(char (&target)[size], std::string_view text) {
    text.copy(target, size - 1);
}

void write_header(std::byte* page, const TraceOptions& options, std::size_t records) {
    auto* header = new (page) Header{};
    header->major = trace_major;
    header->minor = trace_minor;
    header->byte_order = byte_order_mark;
    header->header_bytes = header_size;
    header->record_bytes = sizeof(Record);
    header->capacity = records;
    header->pid = platform::process_id();
    header->rank = options.rank;
    header->world_size = options.world_size;
    std::ranges::copy(options.run_id, header->run_id);
    header->monotonic_ns = platform::monotonic_ns();
    header->wall_ns = platform::wall_ns();
    copy_text(header->clock_name, platform::monotonic_clock_name());
    copy_text(header->clock_identity, platform::clock_identity());
    // Last: a reader that finds the magic finds a complete header.
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(header->magic, trace_magic, sizeof(trace_magic));
}

platform::MappedFile create_mapping(const std::filesystem::path& path, const TraceOptions& options) {
    if (options.capacity_bytes < min_capacity_bytes || options.capacity_bytes > max_capacity_bytes) {
        throw std::invalid_argument("trace capacity must be between 64 KiB and 64 GiB, not " +
                                    std::to_string(options.capacity_bytes) + " bytes");
    }
    if (options.rank >= options.world_size) {
        throw std::invalid_argument("rank " + std::to_string(options.rank) + " is not below the world size " +
                                    std::to_string(options.world_size));
    }
    const std::size_t records = options.capacity_bytes / sizeof(Record);
    return platform::MappedFile::create(path, header_size + records * sizeof(Record), options.if_exists,
                                        [&](std::byte* page) { write_header(page, options, records); });
}

std::uint64_t add(std::uint64_t& counter) noexcept {
    return std::atomic_ref(counter).fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t load(std::uint64_t& counter) noexcept {
    return std::atomic_ref(counter).load(std::memory_order_relaxed);
}

}  // namespace

TraceVisit::TraceVisit(const TraceFile* trace) noexcept : trace_(trace->users_.enter() ? trace : nullptr) {}

TraceVisit::~TraceVisit() {
    if (trace_ != nullptr) {
        trace_->leave();
    }
}

// For nothing where a mapping that was given up can still be written to.
TraceVisit TraceVisit::of_operation([[maybe_unused]] const TraceFile* trace) noexcept {
    if constexpr (platform::MappedFile::keeps_addresses) {
        return {};
    } else {
        return TraceVisit(trace);
    }
}

void Operation::stamp(std::size_t which, std::int64_t monotonic_ns) const noexcept {
    if (record_ == nullptr) {
        return;
    }
    if (const auto visit = TraceVisit::of_operation(trace_)) {
        std::atomic_ref(record_->times[which]).store(monotonic_ns, std::memory_order_relaxed);
    }
}

void Operation::set_flags(std::uint32_t flags) const noexcept {
    if (record_ == nullptr) {
        return;
    }
    if (const auto visit = TraceVisit::of_operation(trace_)) {
        std::atomic_ref(record_->flags).fetch_or(flags, std::memory_order_relaxed);
    }
}

void Operation::complete() const noexcept {
    if (record_ == nullptr) {
        return;
    }
    if (const auto visit = TraceVisit::of_operation(trace_)) {
        std::uint64_t open = word_of(ticket_, SlotState::in_flight);
        // A slot that was already completed may belong to a newer ticket by now: leave it alone.
        if (word_ref(*record_).compare_exchange_strong(open, word_of(ticket_, SlotState::complete),
                                                       std::memory_order_release,
                                                       std::memory_order_relaxed)) {
            trace_->leave();  // since open()
        }
    }
}

TraceFile::TraceFile(const std::filesystem::path& path, const TraceOptions& options)
    : file_(create_mapping(path, options)),
      path_(std::filesystem::absolute(path)),
      header_(reinterpret_cast<Header*>(file_.data())),
      made_(*header_),
      records_(reinterpret_cast<Record*>(file_.data() + header_size),
               (file_.size() - header_size) / sizeof(Record)) {}

std::optional<TraceFile::Claim> TraceFile::claim() noexcept {
    for (int tries = 0; tries < max_claim_tries; ++tries) {
        const std::uint64_t ticket = add(header_->tickets);
        Record& record = records_[ticket % records_.size()];
        std::uint64_t seen = word_ref(record).load(std::memory_order_relaxed);
        const std::uint64_t mine = word_of(ticket, SlotState::writing);
        const bool unused = seen == 0;
        const bool free = unused || state_of(seen) == SlotState::complete;
        // A writer that slept for a whole round finds a newer ticket here: a slot's ticket never decreases.
        // Acquire: a reader's copy and the last owner's stores are complete before we write.
        if (free && seen < mine &&
            word_ref(record).compare_exchange_strong(seen, mine, std::memory_order_acquire,
                                                     std::memory_order_relaxed)) {
            if (!unused) {
                add(header_->overwritten);
            }
            // The word must be seen as 'writing' before any field changes.
            std::atomic_thread_fence(std::memory_order_release);
            return Claim{&record, ticket};
        }
        add(header_->skipped);
    }
    add(header_->dropped);
    return std::nullopt;
}

void TraceFile::leave() const noexcept {
    if (users_.leave()) {
        give_up();
    }
}

void TraceFile::close() noexcept {
    if (users_.close()) {
        give_up();
    }
}

void TraceFile::give_up() const noexcept {
    last_counters_ = counted();
    file_.give_up();
    given_up_.store(true, std::memory_order_release);
}

Operation TraceFile::open(const Record& record) noexcept {
    if (!users_.enter()) {
        return {};
    }
    const auto slot = claim();
    if (!slot) {
        leave();
        return {};
    }
    store_body(*slot->record, record);
    word_ref(*slot->record).store(word_of(slot->ticket, SlotState::in_flight), std::memory_order_release);
    return {this, slot->record, slot->ticket};
}

bool TraceFile::write(const Record& record) noexcept {
    const TraceVisit visit(this);
    const auto slot = visit ? claim() : std::nullopt;
    if (!slot) {
        return false;
    }
    store_body(*slot->record, record);
    word_ref(*slot->record).store(word_of(slot->ticket, SlotState::complete), std::memory_order_release);
    return true;
}

void TraceFile::write_error(const Record& operation, std::uint64_t ticket, std::string_view text) noexcept {
    const std::size_t parts = std::min((text.size() + text_size - 1) / text_size, max_error_parts);
    for (std::size_t part = 0; part < parts; ++part) {
        Record record{};
        record.kind = static_cast<std::uint16_t>(Kind::error);
        record.flags = flag_error;
        record.group = operation.group;
        record.reference = ticket;
        record.step = operation.step;
        record.module = operation.module;
        record.index = static_cast<std::uint32_t>(part);
        record.thread = platform::thread_id();
        const std::string_view piece = text.substr(part * text_size, text_size);
        std::memcpy(record.times, piece.data(), piece.size());
        write(record);
    }
}

void TraceFile::beat(std::int64_t monotonic_ns) noexcept {
    if (const TraceVisit visit(this); visit && !lost()) {
        std::atomic_ref(header_->heartbeat_ns).store(monotonic_ns, std::memory_order_relaxed);
    }
}

void TraceFile::mark_closed() noexcept {
    if (const TraceVisit visit(this); visit && !lost()) {
        std::atomic_ref(header_->closed).store(1, std::memory_order_release);
    }
}

void TraceFile::mark_ended(ProcessEnd how) noexcept {
    const auto wanted = static_cast<std::uint64_t>(how);
    auto none = static_cast<std::uint64_t>(ProcessEnd::not_seen);
    if (const TraceVisit visit(this); !visit) {
        mark_ended_in_file(wanted);
    } else if (!lost()) {
        std::atomic_ref(header_->ended)
            .compare_exchange_strong(none, wanted, std::memory_order_release, std::memory_order_relaxed);
    }
}

void TraceFile::mark_ended_in_file(std::uint64_t how) const noexcept {
    if (inherited()) {
        return;
    }
    try {
        std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
        Header found{};
        if (file.read(reinterpret_cast<char*>(&found), sizeof found) && is_ours(found) &&
            found.ended == static_cast<std::uint64_t>(ProcessEnd::not_seen)) {
            file.seekp(offsetof(Header, ended));
            file.write(reinterpret_cast<const char*>(&how), sizeof how);
        }
    } catch (const std::exception&) {
        // Nobody is left to report to: the process ends, or the recorder went without a word.
        return;
    }
}

bool TraceFile::lost() const noexcept {
    switch (file_.state()) {
        case platform::MappingState::cut_short:
            return true;
        case platform::MappingState::inherited:
            return false;
        case platform::MappingState::whole:
            break;
    }
    // If a copy onto the file cut it short and filled it again, it is as long as before but no longer ours.
    const TraceVisit visit(this);
    return visit && !is_ours(*header_);
}

bool TraceFile::is_ours(const Header& header) const noexcept {
    return std::memcmp(header.magic, made_.magic, sizeof(made_.magic)) == 0 &&
           std::memcmp(header.run_id, made_.run_id, sizeof(made_.run_id)) == 0 && header.pid == made_.pid &&
           header.monotonic_ns == made_.monotonic_ns;
}

TraceCounters TraceFile::counted() const noexcept {
    return {load(header_->tickets), load(header_->overwritten), load(header_->skipped),
            load(header_->dropped)};
}

TraceCounters TraceFile::counters() const noexcept {
    if (const TraceVisit visit(this); visit) {
        return counted();
    }
    while (!given_up_.load(std::memory_order_acquire)) {
        std::this_thread::yield();  // another thread is just giving it up
    }
    return last_counters_;
}

std::optional<Record> TraceFile::read(std::size_t index) const noexcept {
    const TraceVisit visit(this);
    if (!visit) {
        return std::nullopt;
    }
    Record& slot = records_[index];
    const std::uint64_t before = word_ref(slot).load(std::memory_order_acquire);
    if (before == 0 || state_of(before) == SlotState::writing) {
        return std::nullopt;
    }
    std::array<std::uint64_t, body_words + 1> words{before};
    std::uint64_t* body = body_of(slot);
    for (std::size_t i = 0; i < body_words; ++i) {
        words[i + 1] = std::atomic_ref(body[i]).load(std::memory_order_relaxed);
    }
    // The copy is consistent only if nobody has claimed the slot meanwhile (sequence lock).
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t after = word_ref(slot).load(std::memory_order_relaxed);
    if (before >> 2U != after >> 2U || state_of(after) == SlotState::writing) {
        return std::nullopt;
    }
    Record copy{};
    std::memcpy(&copy, words.data(), sizeof(Record));
    return copy;
}

}  // namespace ddpdiag

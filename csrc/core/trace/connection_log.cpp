#include "core/trace/connection_log.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/trace/hash.hpp"

namespace ddpdiag {
namespace {

using platform::Reading;

std::int64_t word(const Reading& reading) {
    return reading ? static_cast<std::int64_t>(*reading) : -1;
}

// Counters of 32 bits wrap around, as the kernel's do; all ones are left for what is not available.
std::uint64_t half(const Reading& reading) {
    constexpr std::uint64_t none = std::numeric_limits<std::uint32_t>::max();
    return reading ? std::min<std::uint64_t>(*reading & none, none - 1) : none;
}

std::uint64_t halves(const Reading& low, const Reading& high) {
    return half(low) | (half(high) << 32U);
}

std::uint32_t quarter(const Reading& reading) {
    constexpr std::uint64_t none = std::numeric_limits<std::uint16_t>::max();
    return static_cast<std::uint32_t>(reading ? std::min(*reading, none - 1) : none);
}

std::string text_of(const platform::Address& address) {
    return address.ip + ":" + std::to_string(address.port);
}

// Whether anything but the moment and the round trip differs.
bool differs(const Record& one, const Record& other) {
    return one.bytes != other.bytes || one.group != other.group || one.sequence != other.sequence ||
           one.index != other.index ||
           std::memcmp(
               &one.times[connection_value::bytes_sent], &other.times[connection_value::bytes_sent],
               (connection_value::round_trips - connection_value::bytes_sent) * sizeof one.times[0]) != 0;
}

}  // namespace

std::string connection_name(const platform::TcpSocket& socket) {
    return text_of(socket.local) + "|" + (socket.peer ? text_of(*socket.peer) : "");
}

Record connection_record(const platform::TcpSocket& socket, std::uint64_t name_hash,
                         std::int64_t monotonic_ns, std::uint32_t step) {
    const platform::TcpInfo& info = socket.info;
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::connection);
    record.reference = name_hash;
    record.step = step;
    record.thread = platform::thread_id();
    record.bytes = static_cast<std::uint64_t>(word(info.retransmitted_bytes));
    record.sequence = halves(info.unacked_segments, info.notsent_bytes);
    record.group = halves(info.total_rto ? info.total_rto : info.timeout_episodes, info.total_rto_ms);
    record.module = static_cast<std::uint32_t>(half(info.mss_bytes));
    record.index = quarter(info.backoff) | (quarter(info.retransmit_timeouts) << 16U);
    record.times[connection_value::at] = monotonic_ns;
    record.times[connection_value::bytes_sent] = word(info.bytes_sent);
    record.times[connection_value::bytes_acked] = word(info.bytes_acked);
    record.times[connection_value::bytes_received] = word(info.bytes_received);
    record.times[connection_value::busy_us] = word(info.busy_us);
    record.times[connection_value::segments] =
        static_cast<std::int64_t>(halves(info.data_segments_out, info.retransmitted_segments));
    record.times[connection_value::unusual] =
        static_cast<std::int64_t>(halves(info.dsack_dups, info.rcv_ooopack));
    record.times[connection_value::round_trips] =
        static_cast<std::int64_t>(halves(info.min_rtt_us, info.rtt_us));
    return record;
}

void ConnectionLog::take(const std::vector<platform::TcpSocket>& sockets, std::int64_t monotonic_ns,
                         std::uint32_t step) {
    for (auto& [hash, followed] : followed_) {
        followed.there = false;
    }
    for (const platform::TcpSocket& socket : sockets) {
        // A system that reports nothing leaves nothing to record.
        if (socket.listening || !socket.peer || socket.source.empty()) {
            continue;
        }
        const std::string text = connection_name(socket);
        const std::uint64_t hash = fnv1a(text);
        if (!followed_.contains(hash) && followed_.size() >= most) {
            continue;
        }
        Followed& followed = followed_[hash];
        followed.there = true;
        const Record record = connection_record(socket, hash, monotonic_ns, step);
        if (followed.named && !differs(record, followed.last)) {
            continue;
        }
        // Again before the ring has come round: a reading without a name is of no use.
        const std::uint64_t tickets = trace_->counters().tickets;
        if (!followed.named || tickets - followed.named_at > trace_->capacity() / 2) {
            name(text, hash, step);
            followed.named = true;
            followed.named_at = tickets;
        }
        trace_->write(record);
        followed.last = record;
    }
    std::erase_if(followed_, [](const auto& entry) { return !entry.second.there; });
}

void ConnectionLog::name(const std::string& text, std::uint64_t hash, std::uint32_t step) {
    for (std::size_t part = 0; part * text_size < text.size(); ++part) {
        Record record{};
        record.kind = static_cast<std::uint16_t>(Kind::connection);
        record.flags = flag_name;
        record.reference = hash;
        record.step = step;
        record.index = static_cast<std::uint32_t>(part);
        record.thread = platform::thread_id();
        const std::string_view piece = std::string_view(text).substr(part * text_size, text_size);
        std::memcpy(record.times, piece.data(), piece.size());
        trace_->write(record);
    }
}

}  // namespace ddpdiag

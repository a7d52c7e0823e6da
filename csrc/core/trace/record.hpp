// The event record: 128 bytes of the trace file, the same on every system (docs/trace-format.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddpdiag {

// What a record describes. The numbers are part of the file format: never reuse one.
enum class Kind : std::uint16_t {
    bucket = 1,      // one DDP bucket through the timed all-reduce
    collective = 2,  // any other Gloo operation, seen on the worker thread
    backward = 3,    // one synchronising backward pass of one DDP module
    step = 4,        // one pass of the training loop marked by Recorder.steps()
    parameter = 5,   // one parameter's gradient became ready (sampled steps only)
    error = 6,       // a part of an error's text; `reference` names the operation's ticket
    gradient = 7,    // statistics of a bucket's gradients, or of one parameter's (watched passes only)
    usage = 8,       // what the system counted for the thread that ran backward, at the end of a pass
    connection = 9,  // one reading of a TCP connection of this process, or a part of its name
    phase = 10,      // a named part of the program between steps: a checkpoint, an evaluation
    weights = 11,    // fingerprints of up to 8 parameters of a module, at the end of a backward pass
    history = 12,    // sums over an interval of steps, kept when their own records are overwritten
};

// Bits of Record::flags.
enum Flag : std::uint32_t {
    flag_error = 1U << 0U,        // the operation failed; error records carry the text
    flag_last_bucket = 1U << 1U,  // DDP's last bucket of this backward pass
    flag_native = 1U << 2U,       // registered by Recorder.attach, not as a Python hook
    flag_device = 1U << 3U,       // the bucket lives on an accelerator
    flag_no_batch = 1U << 4U,     // step: none took place; the next one has its number
    flag_sampled = 1U << 5U,      // backward: parameter records were written for this pass
    flag_abandoned = 1U << 6U,    // closed by the recorder, which did not see its end
    flag_compressed = 1U << 7U,   // bucket: `bytes` and `dtype` describe what travelled, not the bucket
    flag_parameter = 1U << 8U,    // gradient: of one parameter, `index` is its index in the module
    flag_foreign = 1U << 9U,      // bucket: reduced by another hook, around which we only put probes
    flag_reducer = 1U << 10U,     // bucket: of a GradientReducer, not of DDP
    flag_name = 1U << 11U,        // connection: a part of its name, no reading
    flag_shared = 1U << 12U,      // bucket: summed by the ranks in shared memory; Gloo only between hosts
    flag_finite = 1U << 13U,      // bucket: all values that this rank put in were seen to be finite
    flag_sparse = 1U << 14U,      // bucket: sparse, so each rank brings as many bytes as it has values
};

// Index into Record::times by kind; all are monotonic nanoseconds, 0 = not seen.
namespace bucket_time {
enum : std::size_t { ready, enqueued, started, ended, consumed, device_ready, returned };
}
namespace collective_time {
enum : std::size_t { started, ended, fingerprint };  // the last is no time but a number: docs/trace-format.md
}
namespace backward_time {
enum : std::size_t { begin, first_gradient, finalize_begin, finalize_end, forward_begin, forward_end };
}
namespace step_time {
enum : std::size_t { wait_begin, begin, end };
}
namespace parameter_time {
enum : std::size_t { ready };
}
// Gradient records hold numbers instead of times: f64 bits, f64 bits, integers, and f64 bits. All except the
// checksum describe this rank's own gradients before they are averaged.
namespace gradient_value {
enum : std::size_t {
    sum_squares,
    absolute_maximum,
    non_finite,        // how many values are infinite or NaN
    first_non_finite,  // index of the first of them in the bucket or parameter, or -1
    parameter,         // index in the module of the parameter that holds it, or -1
    checksum,          // of the bucket's bits after the all-reduce; 0 = not taken
    elements,
    level,  // bucket: mean over its parameters of the logarithm of each one's sum of squares; 0 = not known
};
}

// Connection records hold readings since the connection was made. Two of 32 bits share a word, the first in its low
// half. A word or half of ones: not available.
namespace connection_value {
enum : std::size_t {
    at,  // monotonic nanoseconds
    bytes_sent,
    bytes_acked,
    bytes_received,
    busy_us,
    segments,     // data segments sent; segments retransmitted
    unusual,      // dsack_dups; rcv_ooopack
    round_trips,  // min_rtt_us; rtt_us
};
}
// Weights records hold one word for each of up to 8 parameters from `index` on, 0 = not taken: in the low half a
// checksum of its bits, in the high half its norm as f32.

// Usage records hold readings that only grow, -1 = not available; `at` and the times are nanoseconds.
namespace usage_value {
enum : std::size_t {
    at,                    // monotonic
    thread_cpu,            // user and system time of this thread
    run_delay,             // time this thread was runnable and waited for a core
    process_cpu,           // user and system time of the process
    collector,             // pauses of Python's garbage collector
    major_faults,          // of this thread
    involuntary_switches,  // of this thread
    load_milli,            // load average of one minute, times 1000
};
}
namespace phase_time {
enum : std::size_t { begin, end };
}
// History records hold when their steps began and ended, and sums over them; nanoseconds.
namespace history_value {
enum : std::size_t { begin, end, own, exposed, data_wait, collectives, thread_cpu, run_delay };
}

inline constexpr std::size_t time_count = 8;
inline constexpr std::size_t name_offset = 96;  // collective and phase records: text over times[4..7]
inline constexpr std::size_t name_size = 32;
inline constexpr std::size_t text_offset = 64;  // error records: text over all times
inline constexpr std::size_t text_size = 64;

struct Record {
    std::uint64_t word;       // publication word: (ticket + 1) << 2 | SlotState
    std::uint16_t kind;       // Kind
    std::uint8_t dtype;       // Dtype
    std::uint8_t reduce_op;   // ReduceOp
    std::uint32_t flags;      // Flag bits
    std::uint64_t group;      // FNV-1a of the process group's name; 0 = not known
    std::uint64_t sequence;   // bucket: running number in its group, the same on every rank
    std::uint64_t reference;  // bucket: identity; collective: FNV-1a of name; error: ticket of the operation
    std::uint64_t bytes;      // payload of the operation
    std::uint32_t step;       // counted from 0
    std::uint32_t module;     // index of the DDP module in this recorder
    std::uint32_t index;      // bucket: DDP's index; parameter: index in its module; error: part number
    std::uint32_t thread;     // operating system's id of the thread that opened the record
    std::int64_t times[time_count];  // gradient: gradient_value; usage: usage_value; history: history_value
};

static_assert(sizeof(Record) == 128);
static_assert(offsetof(Record, times) == text_offset);

enum class Dtype : std::uint8_t {
    other = 0,
    float32 = 1,
    float64 = 2,
    float16 = 3,
    bfloat16 = 4,
    complex64 = 5,
    complex128 = 6,
};

enum class ReduceOp : std::uint8_t {
    none = 0,
    average = 1,  // pre-divided by the group's size, then summed
    sum = 2,
};

// Low two bits of the publication word.
enum class SlotState : std::uint8_t {
    writing = 1,    // being filled: readers skip it
    in_flight = 2,  // published, its end is still to come; never overwritten
    complete = 3,   // published and final
};

}  // namespace ddpdiag

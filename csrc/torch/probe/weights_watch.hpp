// Fingerprints of a module's parameters: DDP averages gradients and never compares weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/trace/record.hpp"

namespace ddpdiag {

class TraceFile;

// What is compared of one parameter. `bits` depends on every bit of it and is never 0.
struct WeightMark {
    std::uint64_t bits = 0;
    double sum_squares = 0;
};

// Nothing for what cannot be read here without a copy or a wait: not on the host, sparse, with gaps, freed, of a type
// that the kernels do not know.
[[nodiscard]] std::optional<WeightMark> mark_of(const at::Tensor& parameter);

// Marks all parameters once in `interval` passes, some in each pass, so that no step takes notably longer. Which ones
// depends on the pass's number alone: the same on all ranks. For the thread that runs the hook.
class WeightsWatch {
public:
    explicit WeightsWatch(const std::vector<at::Tensor>& parameters);

    // Writes the marks of the parameters whose turn ends with this pass. `record`: of the pass, as it describes them.
    void look(TraceFile& trace, const Record& record, std::uint32_t pass, std::uint64_t interval);

    // Of these parameters together; 0 if one cannot be read.
    [[nodiscard]] std::uint64_t bits_of(const std::vector<std::uint32_t>& parameters) const;

private:
    using WeakParameter = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

    [[nodiscard]] at::Tensor parameter(std::size_t index) const;
    [[nodiscard]] std::uint64_t begin_of(std::size_t index) const noexcept;
    // The mark to go on with in this pass, whose share begins at `from`; nothing: the parameter cannot be read.
    [[nodiscard]] std::optional<WeightMark> begun(const at::Tensor& values, std::size_t index,
                                                  std::uint64_t from, std::uint32_t pass) const;

    std::vector<WeakParameter> parameters_;
    // Where each one ends, if all lie one behind the other, each in whole pieces.
    std::vector<std::uint64_t> ends_;

    // Of a parameter that is too large for one pass.
    struct Part {
        std::uint32_t next_pass = 0;  // that goes on with it
        std::optional<WeightMark> mark;
    };
    Part part_;
};

}  // namespace ddpdiag

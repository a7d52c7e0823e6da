"""Messages of launchers, the system and the installation."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import ByShell, Run, SetVariable, UnsetVariable

MESSAGES: tuple[Message, ...] = (
    Message(
        "nccl_missing",
        text_pattern(
            r"doesn't have NCCL built in",
            r"ProcessGroupNCCL is only supported with GPUs",
            r"NCCL[^\n]*not available",
        ),
        "The script asks for NCCL, which this torch does not have: no wheel for Windows has it, and no CPU build.",
        'Use init_process_group("gloo"). For NCCL it takes Linux, NVIDIA GPUs and a CUDA build of torch.',
    ),
    Message(
        "mpi_missing",
        text_pattern(r"doesn't have MPI built in"),
        "The script asks for MPI, which no wheel of torch has.",
        'Use init_process_group("gloo"); mpirun may still start the ranks.',
    ),
    Message(
        "out_of_memory",
        text_pattern(
            r"Out of memory: Killed process|oom-kill|DefaultCPUAllocator: (?:can't|not enough memory)|\bMemoryError\b"
            r"|CUDA out of memory"
        ),
        "This process, or one beside it, ran out of memory.",
        "Use a smaller batch, fewer ranks on the machine, or fewer loader workers.",
    ),
    Message(
        "rank_crashed",
        text_pattern(
            r"rank *: *(?P<rank>\d+)[^\n]*\n(?:[^\n]*\n)??[^\n]*exitcode *: *-11\b",
            r"Signal 11 \(SIGSEGV\)|exitcode *: *-11\b|Segmentation fault|0xC0000005|3221225477",
        ),
        "A rank crashed in native code. While the group is being made, the known reason is "
        "TORCH_GLOO_LAZY_INIT set on "
        "some ranks only: the others crash.",
        "Give all ranks the same TORCH_GLOO_LAZY_INIT, or unset it everywhere.",
        lines=(UnsetVariable("TORCH_GLOO_LAZY_INIT"),),
    ),
    Message(
        "rank_killed",
        text_pattern(
            r"rank *: *(?P<rank>\d+)[^\n]*\n(?:[^\n]*\n)??[^\n]*exitcode *: *-9\b",
            r"Signal 9 \(SIGKILL\)|exitcode *: *-9\b|^Killed$",
        ),
        "A rank was killed: by somebody, a batch system, or the kernel as memory ran out.",
        "Look for 'Out of memory' in the kernel's log; use a smaller batch or fewer loader workers.",
        lines=(ByShell("sudo dmesg | grep -i 'out of memory'"),),
    ),
    Message(
        "libraries_missing",
        text_pattern(
            r"\[WinError (?:126|127|1114)\][^\n]*",
            r"DLL load failed while importing",
            r"error loading \"[^\"]*\.dll\"",
        ),
        "Windows cannot load torch's libraries: the Microsoft Visual C++ runtime is missing or too old.",
        "Install the current Visual C++ Redistributable (x64), and start a new shell.",
        lines=(Run("winget install --id Microsoft.VCRedist.2015+.x64"),),
    ),
    Message(
        "torch_missing",
        text_pattern(r"No module named '?torch'?(?![\w.])"),
        "torch is not installed in this Python.",
        "Install it. 'pyddpdiag --version' says which version fits.",
        lines=(Run("pip install torch"),),
    ),
    Message(
        "one_thread",
        text_pattern(r"Setting OMP_NUM_THREADS environment variable for each process to be 1"),
        "torchrun gives each rank one thread unless OMP_NUM_THREADS is set. On CPUs, training is then "
        "slower than it could "
        "be.",
        "Set OMP_NUM_THREADS to the number of cores divided by the ranks of this machine ('pyddpdiag "
        "doctor' says which).",
        role=Role.WARNING,
        lines=(SetVariable("OMP_NUM_THREADS", "CORES-PER-RANK"),),
    ),
    Message(
        "aborted_at_exit",
        text_pattern(r"terminate called without an active exception"),
        "A process was aborted while Python ended: most likely a thread of Gloo's was still releasing a collective, "
        "and torch does not wait for those. The work was done, or another error stands before this one; but the exit "
        "code says that the process failed.",
        "End the program with torch.distributed.destroy_process_group() and time.sleep(0.1), or make a "
        "pyddpdiag.Recorder in it: that waits for these threads.",
        role=Role.WARNING,
    ),
)

"""Messages of launchers, the system and the installation."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import ByShell, Run, SetVariable

MESSAGES: tuple[Message, ...] = (
    Message(
        "nccl_missing",
        text_pattern(
            r"doesn't have NCCL built in",
            r"ProcessGroupNCCL is only supported with GPUs",
            r"NCCL[^\n]*not available",
        ),
        "The script asks for NCCL, which this torch does not have: neither wheels for Windows nor CPU builds have it.",
        'Use init_process_group("gloo"). NCCL needs Linux, NVIDIA GPUs and a CUDA build of torch.',
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
        "too_many_threads",
        text_pattern(
            r"pthread_create failed|pthread_create: Resource temporarily unavailable|can't start new thread",
            r"Thread creation failed: Resource|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError"
            r"[^\n]*\[Errno 11\]",
        ),
        "This user, or this container, may not start so many threads and processes: each rank and each loader worker "
        "starts a thread for each core of the machine, once for OpenMP and once for OpenBLAS.",
        "Limit the threads of each process, and raise the limit (docker run --pids-limit=-1).",
        lines=(
            SetVariable("OMP_NUM_THREADS", "1"),
            SetVariable("OPENBLAS_NUM_THREADS", "1"),
            ByShell("ulimit -u 65536"),
        ),
    ),
    Message(
        "openmp_twice",
        text_pattern(r"OMP: Error #15"),
        "Two copies of the OpenMP library are loaded: torch's, and one of another package (conda's numpy with MKL).",
        "Install numpy and torch from one place into a new environment. "
        "The variable only hides it: results may be wrong.",
        lines=(Run("pip install --force-reinstall numpy torch"), SetVariable("KMP_DUPLICATE_LIB_OK", "TRUE")),
    ),
    Message(
        "one_thread",
        text_pattern(r"Setting OMP_NUM_THREADS environment variable for each process to be 1"),
        "torchrun gives each rank one thread unless OMP_NUM_THREADS is set. "
        "On CPUs, training is then slower than it could be.",
        "Set OMP_NUM_THREADS to the number of cores divided by the ranks of this machine ('pyddpdiag "
        "doctor' says which).",
        role=Role.WARNING,
        lines=(SetVariable("OMP_NUM_THREADS", "CORES-PER-RANK"),),
    ),
    Message(
        "aborted_at_exit",
        text_pattern(r"terminate called without an active exception"),
        "A process was aborted while Python was ending: most likely a thread of Gloo's was still releasing a "
        "collective, and torch does not wait for that. The work was done, or another error comes before this one; "
        "but the exit code says that the process failed.",
        "End the program with torch.distributed.destroy_process_group() and time.sleep(0.1), or create a "
        "pyddpdiag.Recorder in it, which waits for these threads.",
        role=Role.WARNING,
    ),
)

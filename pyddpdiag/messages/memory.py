"""Messages of memory, shared memory and disks that are full."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, text_pattern
from pyddpdiag.messages.shells import ByShell, Code, Run, SetVariable

_LOOK_AT_MEMORY = ByShell(
    "free -h",
    'powershell -Command "Get-CimInstance Win32_OperatingSystem | Select-Object FreePhysicalMemory"',
)

MESSAGES: tuple[Message, ...] = (
    Message(
        "page_file",
        text_pattern(r"\[WinError 1455\]", r"paging file is too small"),
        "Windows cannot reserve the memory: each rank and each loader worker loads torch's libraries, and the page "
        "file is too small for all of them.",
        "Enlarge the page file (the line opens the dialog: Advanced, Virtual memory), and start fewer loader workers "
        "and ranks.",
        lines=(ByShell("", "SystemPropertiesPerformance.exe"),),
    ),
    Message(
        "shared_memory_full",
        text_pattern(
            r"is killed by signal: Bus error|unexpected bus error encountered in worker|Bus error \(core dumped\)",
            r"torch_[\w]+[^\n]*No space left on device|No space left on device[^\n]*/torch_",
            r"insufficient shared memory|out of shared memory",
            r"exitcode *: *-7\b|Signal 7 \(SIGBUS\)|signal SIGBUS|: line \d+: +\d+ Bus error",
        ),
        "The shared memory in /dev/shm is full: loader workers pass their batches through it, and a container has "
        "64 MB of it by default.",
        "Start the container with more of it (--shm-size or --ipc=host; in Kubernetes an emptyDir of medium Memory at "
        "/dev/shm), or use num_workers=0.",
        lines=(ByShell("df -h /dev/shm"), Run("docker run --shm-size=8g IMAGE")),
    ),
    Message(
        "loader_worker_killed",
        text_pattern(
            r"DataLoader worker \(pids?\(?s?\)? ?(?P<pid>\d+)\) is killed by signal: Killed",
            r"DataLoader worker[^\n]*(?:is killed by signal: Killed|exited unexpectedly)",
        ),
        "A loader worker of this rank was killed, most likely because memory ran out: every worker has its own copy "
        "of what the dataset holds.",
        "Use fewer loader workers, or keep the dataset in a file or an array instead of Python lists.",
        lines=(
            _LOOK_AT_MEMORY,
            ByShell("sudo dmesg | grep -i 'out of memory'"),
        ),
    ),
    Message(
        "loader_worker_crashed",
        text_pattern(
            r"DataLoader worker[^\n]*is killed by signal: (?P<signal>Segmentation fault|Aborted|Illegal instruction)"
        ),
        "A loader worker of this rank crashed in native code: a library that does not work in a forked process "
        "(OpenCV, HDF5, a database's client), or a sample that its decoder cannot read.",
        "Run the loader alone with num_workers=0 and faulthandler to see the line; open files and clients in "
        "worker_init_fn, or start the workers with multiprocessing_context='spawn'.",
        lines=(SetVariable("PYTHONFAULTHANDLER", "1"),),
    ),
    Message(
        "out_of_memory",
        text_pattern(
            r"Out of memory: Killed process|Memory cgroup out of memory|\boom-kill:"
            r"|(?:Detected|with) [1-9]\d* oom[-_]kill event|have been OOM Killed|srun: error[^\n]*Out Of Memory",
            r"OOMKilled(?![\"']?: *\"?false)|Container \S+ exceeded memory limit|was low on resource: memory",
            r"killed due to (?:the node running low on memory|memory pressure)|ray[^\n]*\bOutOfMemoryError",
            r"DefaultCPUAllocator: (?:can't|not enough memory)|\bMemoryError\b|\[Errno 12\] Cannot allocate memory"
            r"|CUDA out of memory",
        ),
        "This process, or one beside it, ran out of memory.",
        "Use a smaller batch, fewer ranks on the machine, or fewer loader workers; or ask for more memory where a "
        "limit was set (SLURM --mem, docker --memory, Kubernetes resources.limits).",
        lines=(_LOOK_AT_MEMORY,),
    ),
    Message(
        "checkpoint_unfinished",
        text_pattern(
            r"^(?:\[rank\d+\]:? ?)?EOFError(?:: Ran out of input)?$",
            r"PytorchStreamReader failed (?:reading zip archive|reading file|locating file)",
            r"unexpected EOF, expected \d+ more bytes",
            r"storage has wrong size: expected -?\d+ got \d+",
        ),
        "The checkpoint that this rank read is not whole: another rank was still writing or downloading it, several "
        "ranks write the same file, or whoever wrote it was ended or had no room meanwhile.",
        "Write it on rank 0 only, under another name, and rename it when it is whole; a barrier before all ranks read "
        "it. A file that is cut short already: take the one before.",
        lines=(
            Code("if torch.distributed.get_rank() == 0:"),
            Code('    torch.save(state, "last.tmp"); os.replace("last.tmp", "last.pt")'),
            Code("torch.distributed.barrier()"),
        ),
        raised_in=re.compile(r"torch[/\\]serialization\.py"),
    ),
    Message(
        "disk_full",
        text_pattern(
            r"No space left on device|\[WinError 112\]|not enough space on the disk|Disk quota exceeded"
        ),
        "A disk is full, or a quota is used up: most likely by checkpoints, logs, or a dataset's cache.",
        "Make room, or write elsewhere. If only one rank writes checkpoints, the others failed because of it.",
        lines=(ByShell("df -h .", 'powershell -Command "Get-PSDrive -PSProvider FileSystem"'),),
    ),
)

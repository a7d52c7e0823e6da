"""Messages of the system, the installation and launchers: memory, disks, libraries, torchrun, ranks of a script."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import ByShell, Code, Run, SetVariable

_LOOK_AT_MEMORY = ByShell(
    "free -h",
    'powershell -Command "Get-CimInstance Win32_OperatingSystem | Select-Object FreePhysicalMemory"',
)


# Other programs may be missing in a job that is well.
_STARTERS = r"torchrun|python[\d.]*|accelerate|mpirun|mpiexec|srun|horovodrun|deepspeed|ray"
_START = Run("torchrun --nproc-per-node 2 SCRIPT.py")
_NODES = Run(
    "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST-OF-NODE-0:29400 "
    "--rdzv-id A-NEW-ID SCRIPT.py"
)


_SAVING = re.compile(r"torch[/\\]serialization\.py|joblib|copy\.py\", line|in save_checkpoint")

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
    Message(
        "rendezvous_closed",
        text_pattern(r"\bRendezvousClosedError\b"),
        "The nodes' rendezvous is closed: another node has ended (finished earlier, failed, or was stopped), or the "
        "id is that of an earlier run.",
        "Read the log of the node that ended first. Give each run an --rdzv-id of its own, and all nodes the same "
        "number of steps.",
        role=Role.VICTIM,
        lines=(_NODES,),
    ),
    Message(
        "rendezvous_timeout",
        text_pattern(r"\bRendezvousTimeoutError\b"),
        "Not all nodes reached torchrun's rendezvous in time: a node was not started, has another --rdzv-endpoint, "
        "--rdzv-id or --nnodes, cannot reach the endpoint, or runs with --standalone, which meets only its own "
        "machine.",
        "Start the same line on every node, and let the endpoint's port through the firewall.",
        role=Role.NETWORK,
        lines=(_NODES,),
    ),
    Message(
        "rendezvous_unreachable",
        text_pattern(r"\bRendezvousConnectionError\b", r"connection to the C10d store has failed"),
        "torchrun cannot reach the endpoint where the nodes meet: nobody listens there (it must be the name or the "
        "address of a node that runs torchrun), or a firewall is in between.",
        "Give all nodes the same --rdzv-endpoint, with an address that node 0 knows as its own, and open its port in "
        "the firewall.",
        role=Role.NETWORK,
        lines=(
            _NODES,
            ByShell(
                "sudo iptables -I INPUT -p tcp --dport 29400 -j ACCEPT",
                'New-NetFirewallRule -DisplayName "torchrun" -Direction Inbound -Protocol TCP -LocalPort 29400 '
                "-Action Allow",
            ),
        ),
    ),
    Message(
        "local_rank_argument",
        text_pattern(r"unrecognized arguments:[^\n]*--local[-_]rank(?:=(?P<local_rank>\d+))?"),
        "torch.distributed.launch passes --local-rank, which the script does not know (it was --local_rank before "
        "torch 2.0).",
        'Start the script with torchrun, and read int(os.environ["LOCAL_RANK"]); or let it take both spellings: '
        'add_argument("--local-rank", "--local_rank", type=int).',
        lines=(_START,),
    ),
    Message(
        "launcher_broken",
        text_pattern(
            r"^failed to create process\.",
            r"Fatal error in launcher: Unable to create process",
            r"\bexecve\(\): (?P<program>[^:\n]+): No such file",
            r"\bexec: \"(?P<program__2>[^\"\n]+)\": executable file not found",
            rf"(?<!\w)(?P<program__3>{_STARTERS}): (?:command )?not found",
            rf"command not found: (?P<program__4>{_STARTERS})\b",
            rf"'(?P<program__5>{_STARTERS})' is not recognized as",
        ),
        "The program that is to start the ranks is not found, or does not find its Python: the environment that holds "
        "it is not active in this job or container, was moved or copied, or its path contains blanks.",
        "Activate that environment where the job starts, and start the module of its Python instead of the program.",
        lines=(Run("python -m torch.distributed.run --nproc-per-node 2 SCRIPT.py"),),
    ),
    Message(
        "script_missing",
        text_pattern(r"can't open file '(?P<path>[^']+)': \[Errno 2\]"),
        "Python does not find the script: the path starts from another folder, or it contains a blank and is not "
        "quoted.",
        "Give the full path, in quotes.",
        lines=(Run('torchrun --nproc-per-node 2 "FOLDER/SCRIPT.py"'),),
    ),
    Message(
        "main_guard",
        text_pattern(
            r"start a new process before the(?: current process has finished its bootstrapping phase)?\s*$",
            r"finished its bootstrapping phase",
        ),
        "Each new process imports the script, and the script starts processes again: it has no main guard. Windows "
        "and macOS start every process this way, loader workers too.",
        "Put the code that starts ranks or loader workers under: if __name__ == '__main__':",
        lines=(Run("torchrun --nproc-per-node 2 SCRIPT.py"),),
    ),
    Message(
        "spawn_from_notebook",
        text_pattern(r"Can't get attribute '(?P<name>[^']+)' on <module '__main__'"),
        "A new process cannot find the function or class that it is to run: it was defined in a notebook or an "
        "interactive session, which the new process does not have.",
        "Put it into a file and import it from there, or turn the notebook into a script and start that.",
        lines=(
            Run("jupyter nbconvert --to script NOTEBOOK.ipynb"),
            Run("torchrun --nproc-per-node 2 NOTEBOOK.py"),
        ),
    ),
    Message(
        "spawn_not_picklable",
        text_pattern(
            r"Can't (?:pickle|get) local object '(?P<name>[^']+)'",
            r"Can't pickle <(?:function|class)[^\n]*",
            r"[Cc]an(?:no|')t pickle '?_?[\w.]+'? objects?",
        ),
        "What a new process is to run or gets as an argument cannot be sent to it: a lambda, a function or class "
        "within a function, an open file, a lock or a process group. Windows and macOS send datasets to loader "
        "workers, too.",
        "Define it at the top level of a file, and create files, locks and groups in the new process; or start the "
        "ranks with torchrun.",
        lines=(Run("torchrun --nproc-per-node 2 SCRIPT.py"),),
        unless=_SAVING,
    ),
)

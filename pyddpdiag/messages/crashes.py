"""Messages of processes that a signal ended, and of jobs that somebody ended; and launchers that say only that."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import HANG, READ_LOGS, ByShell, Run, SetVariable, UnsetVariable

_CPU = 'powershell -Command "Get-CimInstance Win32_Processor | Select-Object Name"'
_OF_RANK = r"rank *: *(?P<rank>\d+)[^\n]*\n(?:[^\n]*\n)??[^\n]*exitcode *: *"

MESSAGES: tuple[Message, ...] = (
    Message(
        "terminal_closed",
        text_pattern(r"SignalException[^\n]*got signal: 1\b", r"Received (?:1|SIGHUP) death signal"),
        "The launcher got SIGHUP: the terminal or the ssh session that started it was closed. nohup does not help, as "
        "torchrun listens to that signal again.",
        "Start it in tmux or screen, or in a session of its own.",
        lines=(
            ByShell("tmux new -s train"),
            ByShell("setsid nohup torchrun --nproc-per-node 2 SCRIPT.py &"),
        ),
    ),
    Message(
        "job_cancelled",
        text_pattern(
            r"(?:slurmstepd[^\n]*)?CANCELLED AT \S+ DUE TO (?P<reason>TIME LIMIT|PREEMPTION|NODE FAILURE|JOB REQUEUE)",
            r"slurmstepd[^\n]*CANCELLED AT|CANCELLED by (?P<user>\d+)",
        ),
        "SLURM ended the job: its time was up, another job had priority, its node failed, or somebody cancelled it.",
        "Ask for more time (sbatch --time), and save a checkpoint in time (sbatch --signal=B:USR1@120). The line says "
        "how the job ended.",
        lines=(ByShell("sacct -j $SLURM_JOB_ID --format=JobID,State,ExitCode,Elapsed,Timelimit,MaxRSS"),),
    ),
    Message(
        "launcher_terminated",
        text_pattern(r"SignalException[^\n]*got signal: 15\b", r"Received (?:15|SIGTERM) death signal"),
        "Somebody ended the launcher with SIGTERM: a batch system at its limit, docker stop, Kubernetes when it "
        "moved the pod, or kill.",
        "See what the batch system or the container's log says about this time.",
        lines=(ByShell("sudo journalctl --since '1 hour ago' | grep -iE 'kill|oom|stop'"),),
    ),
    Message(
        "illegal_instruction",
        text_pattern(
            rf"{_OF_RANK}-4\b",
            r"exitcode *: *-4\b|Signal 4 \(SIGILL\)|signal SIGILL|Illegal instruction|3221225501|0xC000001D",
        ),
        "This CPU does not have an instruction that a library uses: torch or another wheel was built for newer CPUs, "
        "or the machines of the job differ.",
        "Compare the machines' CPUs; install wheels that fit the oldest. The variable limits torch's own kernels.",
        lines=(
            ByShell("lscpu | grep -E 'Model name|avx'", _CPU),
            SetVariable("ATEN_CPU_CAPABILITY", "default"),
        ),
    ),
    Message(
        "rank_crashed",
        text_pattern(
            rf"{_OF_RANK}-11\b",
            r"Signal 11 \(SIGSEGV\)|exitcode *: *-(?:11|8)\b",
            r"Segmentation fault(?: *\(core dumped\)|[^\n]*python|\s*$)|signal SIG(?:SEGV|FPE)",
            r"exit(?:ed)? (?:with )?(?:status )?code:? 139\b|0xC0000005|3221225477|3221225725",
        ),
        "A rank crashed in native code. While the group is being made, the known reason is TORCH_GLOO_LAZY_INIT set "
        "on some ranks only: the others crash. Otherwise suspect a library other than torch, or versions that do not "
        "fit together.",
        "Give all ranks the same TORCH_GLOO_LAZY_INIT, or unset it everywhere. PYTHONFAULTHANDLER=1 prints the "
        "Python line at which it crashed.",
        lines=(UnsetVariable("TORCH_GLOO_LAZY_INIT"), SetVariable("PYTHONFAULTHANDLER", "1")),
    ),
    Message(
        "rank_killed",
        text_pattern(
            rf"{_OF_RANK}-9\b",
            r"Signal 9 \(SIGKILL\)|exitcode *: *-9\b|^Killed$|: line \d+: +\d+ Killed|signal SIGKILL",
            r"exit(?:ed)? (?:with )?(?:status )?code:? 137\b|srun: error[^\n]*: Killed|exited on signal 9\b",
            r"A worker died or was killed while executing a task|its worker process has died",
        ),
        "A rank was killed: by a person, a batch system, or the kernel because memory ran out.",
        "Look for 'Out of memory' in the kernel's log; use a smaller batch or fewer loader workers.",
        lines=(
            ByShell(
                "sudo dmesg | grep -i 'out of memory'",
                'wevtutil qe System /q:"*[System[(EventID=2004)]]" /c:5 /f:text',
            ),
        ),
    ),
    Message(
        "rank_aborted",
        text_pattern(
            r"exitcode *: *-6\b|Signal 6 \(SIGABRT\)|signal SIGABRT|exited on signal 6\b|3221226505|0xC0000409",
            r"terminat(?:e called after throwing an instance of|ing (?:due to|with) uncaught exception of type)"
            r" '?(?P<class>\w++(?:::\w++)*+)"
            r"(?!'?\s*what\(\):[^\n]*(?:Broken pipe|Connection (?:reset|closed)))(?:'\s*what\(\):[^\n]*)?",
        ),
        "A rank aborted in native code: an error was raised where nothing could catch it, such as on Gloo's own "
        "thread. Its log names the error after 'terminate called', or 'terminating'.",
        "Read the rank's own output from before the abort. PYTHONFAULTHANDLER=1 prints the Python line.",
        lines=(SetVariable("PYTHONFAULTHANDLER", "1"),),
    ),
    Message(
        "interrupted",
        text_pattern(
            r"^KeyboardInterrupt$",
            r"SignalException[^\n]*got signal: 2\b|signal SIGINT|0xC000013A|3221225786",
        ),
        "Somebody pressed Ctrl-C. If the job hung, the tracebacks show where each rank was.",
        "If it hung: the traces of a recorded run name the rank that the others waited for.",
        lines=(Run(HANG),),
        role=Role.SUMMARY,
    ),
    Message(
        "rank_terminated",
        text_pattern(r"exitcode *: *-15\b|Signal 15 \(SIGTERM\)|signal SIGTERM"),
        "The launcher ended this rank after another one had failed, or somebody ended the job.",
        "Look for the rank that failed first.",
        lines=(Run(f"{READ_LOGS} rank_0.log rank_1.log"),),
        role=Role.SUMMARY,
    ),
    Message(
        "launcher_summary",
        text_pattern(
            r"\bChildFailedError\b|\bProcess(?:Raised|Exited)Exception\b|Root Cause \(first observed failure\)",
            r"CalledProcessError: Command[^\n]*returned non-zero exit status (?P<exitcode>\d+)",
            r"mpirun (?:noticed|detected) that (?:process|one or more processes)",
        ),
        "The launcher only reports that a rank failed. The reason is in that rank's own output, above or in its own "
        "log.",
        "Keep each rank's output in a file, and read that of the rank that failed first.",
        role=Role.SUMMARY,
        lines=(Run("torchrun --log-dir logs --redirects 3 --tee 3 --nproc-per-node 2 SCRIPT.py"),),
    ),
)

"""Messages of collectives, and of processes that a signal ended; and launchers that say only that."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import HANG, READ_LOGS, ByShell, Code, Run, SetVariable, UnsetVariable

_CPU = 'powershell -Command "Get-CimInstance Win32_Processor | Select-Object Name"'
_OF_RANK = r"rank *: *(?P<rank>\d+)[^\n]*\n(?:[^\n]*\n)??[^\n]*exitcode *: *"

MESSAGES: tuple[Message, ...] = (
    Message(
        "collectives_differ",
        text_pattern(
            r"Detected mismatch between collectives on ranks?\. Rank (?P<rank>\d+) is running "
            r"(?:collective|inconsistent collective)[^\n]*?but Rank (?P<other>\d+) is",
            r"Detected mismatch between collectives",
        ),
        "The ranks are in different collectives at the same point: only some of them took a branch, or they call "
        "collectives in another order.",
        "Compare the two operations in the message, and look for what depends on the rank or its data. "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL shows the first operation that differs.",
        lines=(SetVariable("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),),
    ),
    Message(
        "sizes_differ",
        text_pattern(
            r"op\.preamble\.length <= op\.nbytes(?:\. (?P<received>\d+) vs (?P<expected>\d+))?",
            r"op\.nread == op\.preamble\.nbytes",  # Gloo over libuv: macOS and Windows
        ),
        "Another rank sent more bytes than this one expects: shapes or types differ between the ranks, or their "
        "collectives are in another order. This rank may be innocent.",
        "Compare the shapes that the ranks put into this collective. TORCH_DISTRIBUTED_DEBUG=DETAIL names them.",
        lines=(SetVariable("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),),
    ),
    Message(
        "scalar_type",
        text_pattern(r"\bInvalid scalar type\s*$"),
        "Gloo does not reduce numbers of this type (int16; in older versions of torch also bool and bfloat16).",
        "Reduce a copy of a type that it has: tensor.to(torch.int32), or torch.float32.",
        lines=(Code("total = tensor.to(torch.int32)"), Code("torch.distributed.all_reduce(total)")),
        torch_only=True,
    ),
    Message(
        "average_unsupported",
        text_pattern(r"Cannot use ReduceOp\.(?P<op>AVG|PREMUL_SUM) with Gloo"),
        "Gloo adds up, but does not average in this version of torch: ReduceOp.AVG is for NCCL.",
        "Add up, and divide by the number of ranks.",
        lines=(
            Code("torch.distributed.all_reduce(tensor)"),
            Code("tensor /= torch.distributed.get_world_size()"),
        ),
    ),
    Message(
        "not_contiguous",
        text_pattern(r"\bTensors must be contiguous\b"),
        "A collective got a tensor whose elements do not lie one after the other in memory: a transposed one, or a "
        "part of another.",
        "Pass a copy that is, tensor.contiguous(); where the result is to be in the tensor itself, copy it back.",
        lines=(
            Code("whole = tensor.contiguous()"),
            Code("torch.distributed.all_reduce(whole)"),
            Code("tensor.copy_(whole)"),
        ),
        torch_only=True,
    ),
    Message(
        "object_mixed_up",
        text_pattern(r"UnpicklingError: [^\n]*", r"pickle data was truncated"),
        "A rank tried to unpickle bytes that are not an object: the ranks were in different collectives (another "
        "order, or a branch that only some take), so it received another collective's bytes.",
        "Have all ranks call the same object collectives in the same order. TORCH_DISTRIBUTED_DEBUG=DETAIL shows the "
        "first one that differs.",
        lines=(SetVariable("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),),
        needs=re.compile(r"_object_list|_gather_object|gather_object|_tensor_to_object"),
    ),
    Message(
        "barrier_victim",
        text_pattern(
            r"successfully reached monitoredBarrier, but received errors[^\n]*from rank (?P<look_at>\d+)"
        ),
        "This rank reached the barrier; another one did not, and the log of rank 0 names it.",
        "Read the log of rank 0.",
        lines=(Run(f"{READ_LOGS} rank_0.log"),),
        role=Role.VICTIM,
    ),
    Message(
        "barrier_missed",
        text_pattern(
            r"Ranks? (?P<missing>[\d, ]+) failed to pass monitoredBarrier in (?P<timeout_ms>\d+) ms",
            r"monitoredBarrier[^\n]*(?:timed out|timeout)",
            r"timed out in monitoredBarrier after (?P<timeout_ms__2>\d+)",
        ),
        "The ranks that the message names did not reach the barrier in time.",
        "See what those ranks were doing: their logs, or 'pyddpdiag hang' on the trace.",
        role=Role.WAITED,
    ),
    Message(
        "device_ids",
        text_pattern(
            r"device_ids not supported for the selected backend",
            r"device_ids and output_device arguments only work with",
        ),
        "device_ids is for GPUs: barrier(device_ids=...) for NCCL only, DDP(device_ids=...) for modules on a GPU only.",
        "Leave device_ids out.",
    ),
    Message(
        "wrong_device",
        text_pattern(
            r"No backend type associated with device type (?P<device>\w+)", r"Tensors must be CUDA and dense"
        ),
        "The tensor is on a device for which this process group has no backend: NCCL reduces GPU tensors only.",
        'Use init_process_group("gloo") for CPU tensors, or "cpu:gloo,cuda:nccl" for both.',
    ),
    Message(
        "receive_timeout",
        text_pattern(
            r"Timed out waiting (?P<timeout_ms>\d+) ?ms for (?P<what>\w+)",
            r"Application timeout caused pair closure",
            r"timed out after \d+ ?ms",
        ),
        "Another rank did not take part within the timeout: it was stopped, is stuck or slow in its own code, ran out "
        "of memory, left its loop earlier (uneven batches), skipped this collective, or the network between them is "
        "down. This rank only waited.",
        "Find the rank whose log does not show this error: it held up the others. "
        "The traces of a recorded run name it.",
        role=Role.WAITED,
        lines=(Run(HANG),),
        torch_only=True,
    ),
    Message(
        "store_lost",
        text_pattern(r"retrieving \w+ from \[(?P<missing>\d+)\] via c10d[^\n]*got error"),
        "The rank that hosts the store ended before the others had met there.",
        "Read the log of that rank: it ended first.",
        role=Role.VICTIM,
        lines=(Run(f"{READ_LOGS} rank_0.log"),),
    ),
    Message(
        "peer_gone",
        text_pattern(
            r"Connection closed by peer(?: \[?(?P<address>[^\s\[\]]+?)\]?:(?P<port>\d+))?",
            r"(?:Read|Write) error \[?(?P<address__2>[^\s\[\]]+?)\]?:(?P<port__2>\d+): (?:Connection "
            r"reset|Broken pipe)",
            r"(?:An existing )?connection (?:was )?(?:reset|aborted|forcibly closed)|Broken pipe|Socket closed"
            r"|ECONNRESET|software caused connection abort|\[(?:Errno|WinError) (?:104|10053|10054)\]"
            r"|failed to (?:send|recv)|recvValue|sendBytes|recvBytes"
            r"|\bstore\b[^\n]*(?:unreachable|connection (?:was )?(?:lost|closed))"
            r"|Connection (?:was )?(?:refused|timed out)|failed to connect",
        ),
        "A rank that this one talked to is gone: it failed or was killed first. This rank is a victim.",
        "Read the log of the rank that ended first; this one says nothing about the cause.",
        role=Role.VICTIM,
        torch_only=True,
    ),
    Message(
        "store_failed",
        # Where nothing above knows more.
        text_pattern(r"\bDistNetworkError(?:: |$)"),
        "This rank could not reach the store at rank 0, or lost it, and the message does not say why. On Windows, most "
        "likely the name in MASTER_ADDR stands for an address that no interface has.",
        "Give a real address of rank 0's machine as MASTER_ADDR (127.0.0.1 if all ranks are here), and read the log of "
        "rank 0.",
        role=Role.NETWORK,
        lines=(SetVariable("MASTER_ADDR", "127.0.0.1"),),
    ),
    # Of an abort, what the native code says above counts.
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

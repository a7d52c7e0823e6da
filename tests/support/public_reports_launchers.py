"""Reports of launchers, of how groups are made, of older versions and frameworks, reworded as in public_reports."""

from __future__ import annotations

from support.public_logs import MINE, SITE, VICTIM, Report, prefixed, raised, torchrun

DS = (
    "[2026-02-03 13:11:27,879] [INFO] [launch.py:428:sigkill_handler] Killing "
    "subprocess 13266\n[2026-02-03 13:11:27,885] [ERROR] "
    "[launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'fit.py', "
    "'--local_rank=1', '--zero_stage', '2'] exits with return code = {0}\n"
)
MPICH = (
    "=" * 83
    + (
        "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 9665 "
        "RUNNING AT node-a\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n= "
        "  YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n"
    )
    + "=" * 83
    + (
        "\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis "
        "typically refers to a problem with your application.\n"
    )
)
NCCL = (
    "torch.distributed.DistBackendError: [{0}] is setting up NCCL communicator "
    "and retrieving ncclUniqueId from [0] via c10d key-value store by "
    "store->get('0'), but store->get('0') got error: Connection reset by peer\n. "
    "This may indicate a possible application crash on rank 0 or a network set "
    "up issue."
)
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
MESH = "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
DIFF = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is "
    "running collective: CollectiveFingerPrint(SequenceNumber=1, "
    "OpType=BARRIER), but Rank 2 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=0, OpType=BARRIER).Collectives differ "
    "in the following aspects: Sequence number: 1vs 0"
)
REACHED = (
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received "
    "errors while waiting for send/recv from rank 0. Please check rank 0 logs "
    "for faulty rank."
)
REPORTS: tuple[Report, ...] = (
    Report(
        "deepspeedai/DeepSpeed#5302",
        "DeepSpeed's launcher, exit code 1 and no error",
        {"job.log": DS.format(1)},
        "launcher_summary",
    ),
    Report("openai/jukebox#155", "MPICH reports a killed process", {"job.log": MPICH}, "rank_killed"),
    Report(
        "FedML-AI/FedML#588",
        "mpirun reports a crash",
        {
            "job.log": (
                "mpirun noticed that process rank 0 with PID 636 on node fl98 exited on "
                "signal 11 (Segmentation fault).\n"
            )
        },
        "rank_crashed",
        ("rank 0",),
    ),
    Report(
        "facebookresearch/fairseq#2527",
        "mp.spawn, exit code 17",
        {
            "job.log": raised(
                (
                    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated "
                    "with exit code 17"
                ),
                MINE,
                f"{SITE}/torch/multiprocessing/spawn.py",
            )
        },
        "launcher_summary",
        ("rank 0",),
    ),
    Report(
        "MarvinTeichmann/MultiNet#61",
        "a launcher's subprocess crashed",
        {
            "job.log": raised(
                (
                    "subprocess.CalledProcessError: Command '['python', 'fit.py']' died with "
                    "<Signals.SIGSEGV: 11>."
                ),
                f"{SITE}/accelerate/commands/launch.py",
            )
        },
        "rank_crashed",
    ),
    Report(
        "kohya-ss/sd-scripts#87",
        "the script's path has a blank",
        {
            "job.log": (
                "C:\\py\\python.exe: can't open file 'C:\\\\Users\\\\My': [Errno 2] No such "
                "file or directory\n"
            )
            + raised(
                (
                    "subprocess.CalledProcessError: Command '['python.exe', 'fit.py']' returned "
                    "non-zero exit status 2."
                ),
                r"C:\py\lib\site-packages\accelerate\commands\launch.py",
            )
        },
        "script_missing",
        ("job.log",),
    ),
    Report(
        "vllm-project/vllm#6775",
        "Ray's workers cannot connect",
        {
            "job.log": (
                "(RayWorkerWrapper pid=22, ip=192.0.2.8) ERROR 07-25 06:51:17 "
                "worker_base.py:382] RuntimeError: Gloo connectFullMesh failed with "
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error [repeated 12x "
                "across cluster]\n(RayWorkerWrapper pid=22) [rank7]:[E "
                "ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with "
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
            )
        },
        "full_mesh_failed",
        ("rank 7",),
    ),
    Report(
        "hiyouga/LlamaFactory#5769",
        "ranks 2 and 3 lost the store of rank 0",
        {
            "job.log": "".join(
                prefixed(
                    f"[rank{r}]: ",
                    raised(NCCL.format(r), MINE, f"{SITE}/torch/distributed/distributed_c10d.py"),
                )
                for r in (2, 3)
            )
        },
        "store_lost",
        ("rank 0",),
    ),
    Report(
        "rwth-i6/returnn#1621",
        "the loader's own group times out in evaluation",
        {
            "rank_1.log": raised(
                "RuntimeError: Socket Timeout",
                MINE,
                f"{SITE}/torch/utils/data/dataloader.py",
                f"{SITE}/torch/distributed/distributed_c10d.py",
            )
        },
        "store_timeout",
    ),
    Report(
        "determined-ai/determined#8915",
        "the cluster's master ends the launcher",
        {
            "job.log": (
                "[2026-02-27T21:35:32.106Z] fa88 || WARNING: "
                "torch.distributed.elastic.agent.server.api:Received 15 death signal, "
                "shutting down workers\n[2026-02-27T21:35:32.106Z] fa88 || WARNING: "
                "torch.distributed.elastic.multiprocessing.api:Sending process 165 closing "
                "signal SIGTERM\n"
            )
        },
        "launcher_terminated",
    ),
    Report(
        "raywzy/ICT#38",
        "mp.spawn, SIGKILL",
        {
            "job.log": raised(
                (
                    "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated "
                    "with signal SIGKILL"
                ),
                MINE,
            )
        },
        "rank_killed",
        ("rank 0",),
    ),
    Report(
        "pytorch/pytorch#15592",
        "the host name is a loopback address, Gloo aborts",
        {
            "job.log": (
                "terminate called after throwing an instance of 'gloo::IoException'\n  "
                "what():  [/conda-bld/third_party/gloo/gloo/transport/tcp/pair.cc:724] "
                "connect [127.0.1.1]:3210: Connection refused\nAborted (core dumped)\n"
            )
        },
        "hostname_loopback",
        ("job.log",),
    ),
    Report(
        "MIC-DKFZ/nnUNet#2769",
        "a process that makes batches is gone",
        {
            "job.log": "Exception in thread Thread-3 (results_loop):\n"
            + raised(
                (
                    "RuntimeError: One or more background workers are no longer alive. Exiting. "
                    "Please check the print statements above for the actual error message"
                ),
                "/usr/lib/python3.10/threading.py",
                f"{SITE}/batchgenerators/augmenter.py",
            )
            * 2
        },
        "own_error",
        ("job.log",),
    ),
    Report(
        "pytorch/pytorch#148976",
        "torchrun passes on the ranks' tracebacks",
        {"job.log": torchrun((0, 1), (1, 1), says=raised(DIFF, MINE, C10D).rstrip().replace("\n", "\n  "))},
        "collectives_differ",
        ("rank 1", "rank 2"),
    ),
    Report(
        "InternLM/xtuner#719",
        "a rank at a barrier, and torchrun's summary",
        {
            "job.log": prefixed(
                "[rank1]: ", raised(REACHED, MINE, C10D) + f" Original exception:\n{VICTIM}\n"
            )
            + torchrun((0, 1), (1, 1))
        },
        "barrier_victim",
    ),
    Report(
        "microsoft/MeshTransformer#16",
        "all ranks miss a variable, their tracebacks are mixed",
        {
            "job.log": "Traceback (most recent call last):\nTraceback (most recent call last):\n"
            + f'  File "{MINE}", line 714, in <module>\n' * 2
            + "    main(args)    main(args)\n"
            + "KeyError: 'NODE_RANK'\n" * 2
            + torchrun((1, 1), (0, 1))
        },
        "own_error",
        ("rank 1",),
    ),
    Report(
        "zhengchen1999/DAT#31",
        "a script for several ranks, started without a launcher",
        {"job.log": raised("KeyError: 'RANK'", MINE, "/usr/lib/python3.8/os.py")},
        "environment_incomplete",
        ("job.log",),
    ),
    Report(
        "RobinWu218/SimDINO#15",
        "submitit, two nodes",
        {
            "0_log.err": (
                f"[E314 16:42:10.5 ProcessGroupGloo.cpp:143] {MESH}\nsubmitit ERROR "
                "(2026-03-14 16:42:10,554) - Submitted job triggered an exception\n"
            )
            + raised(f"RuntimeError: {MESH}", MINE, C10D)
        },
        "full_mesh_failed",
        ("0_log.err",),
    ),
)

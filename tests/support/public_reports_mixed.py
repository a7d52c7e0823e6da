"""Reports of mixed logs, older versions and frameworks, reworded as in public_reports."""

from support.public_logs import SITE, VICTIM, Report, prefixed, raised, torchrun

MINE = "/home/me/fit.py"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
MESH = "Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
DIFF = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=1, OpType=BARRIER), but Rank 2 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=0, OpType=BARRIER).Collectives differ in the following aspects: "
    "Sequence number: 1vs 0"
)
REACHED = (
    "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
    "send/recv from rank 0. Please check rank 0 logs for faulty rank."
)
REPORTS: tuple[Report, ...] = (
    Report(
        "pytorch/pytorch#15592: the host name is a loopback address, Gloo aborts",
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
        "kubeflow/trainer#2008: the master is gone while a worker starts",
        {
            "pytorch-simple-worker-0.log": "Using distributed PyTorch with gloo backend\n"
            + raised("RuntimeError: Connection reset by peer", MINE, C10D)
        },
        "peer_gone",
    ),
    Report(
        "MIC-DKFZ/nnUNet#2769: a process that makes batches is gone",
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
        "MIC-DKFZ/batchgenerators#133: a queue between processes is gone",
        {
            "job.log": "Exception in thread Thread-2 (results_loop):\n"
            + raised(
                "ConnectionRefusedError: [Errno 111] Connection refused",
                f"{SITE}/batchgenerators/augmenter.py",
                "/usr/lib64/python3.12/multiprocessing/connection.py",
            )
        },
        "own_error",
        ("job.log",),
    ),
    Report(
        "sgl-project/sglang#3226: two nodes, the mesh fails on rank 8",
        {
            "job.log": (
                "[2026-01-30 18:11:27 TP1] Init torch distributed begin.\n[rank8]:[E130 "
                f"18:13:20.1 ProcessGroupGloo.cpp:143] {MESH}\n"
            )
            + raised(f"RuntimeError: {MESH}", MINE, C10D)
        },
        "full_mesh_failed",
        ("rank 8",),
    ),
    Report(
        "facebookresearch/PyTorch-BigGraph#119: processes of a machine cannot connect over IPv6's loopback",
        {
            "job.log": raised(
                (
                    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:769] "
                    "connect [::1]:8355: Connection refused"
                ),
                MINE,
                C10D,
            )
        },
        "hostname_loopback",
        ("job.log",),
    ),
    Report(
        "aurekaresearch/OpenDDE#23: shapes differ between ranks 1 and 2",
        {"job.log": raised(DIFF, MINE, C10D)},
        "collectives_differ",
        ("rank 1", "rank 2"),
    ),
    Report(
        "pytorch/pytorch#148976: torchrun passes on the ranks' tracebacks",
        {"job.log": torchrun((0, 1), (1, 1), says=raised(DIFF, MINE, C10D).rstrip().replace("\n", "\n  "))},
        "collectives_differ",
        ("rank 1", "rank 2"),
    ),
    Report(
        "bghira/SimpleTuner#2712: a monitor repeats the message of a rank",
        {
            "job.log": "[RANK 1] 2026-05-19 10:10:29,701 [ERROR] GPU circuit breaker OPEN: cuda_error - "
            + DIFF.replace("Rank 2", "Rank 7")[14:]
            + "\n"
            + prefixed("[rank7]: ", raised(DIFF.replace("Rank 2", "Rank 7"), MINE, C10D))
        },
        "collectives_differ",
        ("rank 1", "rank 7"),
    ),
    Report(
        "InternLM/xtuner#719: a rank at a barrier, and torchrun's summary",
        {
            "job.log": prefixed(
                "[rank1]: ", raised(REACHED, MINE, C10D) + f" Original exception:\n{VICTIM}\n"
            )
            + torchrun((0, 1), (1, 1))
        },
        "barrier_victim",
    ),
    Report(
        "microsoft/MeshTransformer#16: all ranks miss a variable, their tracebacks are mixed",
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
        "zhengchen1999/DAT#31: a script for several ranks, started without a launcher",
        {"job.log": raised("KeyError: 'RANK'", MINE, "/usr/lib/python3.8/os.py")},
        "environment_incomplete",
        ("job.log",),
    ),
    Report(
        "pytorch/pytorch#76198: rank 1 at a barrier of DETAIL",
        {
            "rank_1.log": raised(REACHED, MINE, f"{SITE}/torch/nn/parallel/distributed.py")
            + f" Original exception:\n{VICTIM}\n"
        },
        "barrier_victim",
    ),
    Report(
        "facebookresearch/fairseq#1635: each line has the driver's time before it",
        {
            "job.log": prefixed(
                "2026-01-20 19:45:24.000 [INFO] [Driver] ",
                raised(
                    "OverflowError: cannot serialize a bytes object larger than 4 GiB",
                    MINE,
                    "/usr/lib/python3.6/multiprocessing/reduction.py",
                ),
            )
        },
        "own_error",
        ("job.log",),
    ),
    Report(
        "hiyouga/LlamaFactory#5719: torchrun.exe does not start on Windows",
        {
            "job.log": (
                "10/16/2024 14:54:11 - INFO - cli - Initializing distributed tasks at: "
                "127.0.0.1:27877\nfailed to create process.\n"
            )
        },
        "launcher_broken",
        ("job.log",),
    ),
    Report(
        "OpenNLPLab/Transnormer#2: a rank is asked for without a group",
        {
            "job.log": raised(
                (
                    "RuntimeError: Default process group has not been initialized, please make "
                    "sure to call init_process_group."
                ),
                MINE,
                C10D,
            )
        },
        "not_initialised",
        ("job.log",),
    ),
    Report(
        "luca-medeiros/lightning-sam#43: four ranks over Gloo, victims only",
        {
            "job.log": "[rank: 1] Global seed set to 1338\ndistributed_backend=gloo\n"
            + raised(f"RuntimeError: {VICTIM}", MINE, C10D) * 3
        },
        "peer_gone",
    ),
    Report(
        "RobinWu218/SimDINO#15: submitit, two nodes",
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

"""Thirty public reports of how jobs ended, reworded: only the error messages are as they were printed."""

from __future__ import annotations

from support.public_logs import SITE, VICTIM, Report, prefixed, raised, spawned, torchrun

MINE = "/home/me/fit.py"
ABORT = (
    f"terminate called after throwing an instance of 'gloo::IoException'\n  what():  {VICTIM}\n"
    "Aborted (core dumped)\n"
)
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: "
    "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are "
    "some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.\n"
)

REPORTS: tuple[Report, ...] = (
    Report(
        "horovod/horovod#2907",
        "a rank is killed, three others abort by Gloo's exception",
        {
            "job.log": "[0]<stderr>:Killed\n"
            + "".join(prefixed(f"[{rank}]<stderr>:", ABORT) for rank in (1, 2, 3))
            + "Process 0 exit with status code 137.\nProcess 3 exit with status code 134.\n"
            "Process 2 exit with status code 134.\nProcess 1 exit with status code 134.\n"
        },
        "rank_killed",
        ("rank 0",),
    ),
    Report(
        "facebookresearch/detectron2#3",
        "a spawned rank dies of a floating point exception",
        {
            "job.log": "Process group URL: tcp://127.0.0.1:54401\n"
            + raised(
                "Exception: process 2 terminated with signal SIGFPE",
                MINE,
                f"{SITE}/torch/multiprocessing/spawn.py",
            )
        },
        "rank_crashed",
        ("rank 2",),
    ),
    Report(
        "ArjunaCluster/ArjunaUsers#52",
        "SLURM's cgroup kills the script, the shell says Killed",
        {
            "slurm-191.err": "/var/spool/slurmd/job191/slurm_script: line 28:  8156 Killed                  "
            "python3 fit.py --epochs 400\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. "
            "Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
        },
        "out_of_memory",
    ),
    Report(
        "huggingface/accelerate#1519",
        "GPU memory runs out on rank 4 of two nodes; two launchers print summaries",
        {
            "job.log": raised(
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB", MINE
            )
            + torchrun((4, 1))
            + raised(
                "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:4711",
                MINE,
            )
        },
        "out_of_memory",
        ("rank 4",),
    ),
    Report(
        "open-mmlab/mmsegmentation#3106",
        "all ranks abort, torchrun shows the first",
        {
            "job.log": "terminate called after throwing an instance of 'std::runtime_error'\n  what():  device lost\n"
            + torchrun((0, -6), (1, -6), (2, -6))
        },
        "rank_aborted",
        ("rank 0",),
    ),
    Report(
        "pytorch/pytorch#107021",
        "a node cannot reach the endpoint",
        {
            "job.log": "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to "
            "(192.0.2.1, 1234).\n"
            + raised(
                "TimeoutError: The client socket has timed out",
                f"{SITE}/torch/distributed/elastic/rendezvous/c.py",
            )
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            + raised(
                "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store "
                "has failed. See inner exception for details.",
                f"{SITE}/torch/distributed/run.py",
            )
        },
        "rendezvous_unreachable",
        ("job.log",),
    ),
    Report(
        "hiyouga/ChatGLM-Efficient-Tuning#102",
        "exit code -7 in a container",
        {"job.log": torchrun((0, -7), (1, -15))},
        "shared_memory_full",
        ("rank 0",),
    ),
    Report(
        "PrimeIntellect-ai/prime-diloco#68",
        "lengths differ after a rank joined, Gloo aborts",
        {
            "rank_0.log": "step 1243, loss 6.9\nterminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
            "  what():  [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= "
            "op.nbytes. 1046204 vs 1040256\n",
            "rank_1.log": raised(f"RuntimeError: {VICTIM}", MINE),
        },
        "sizes_differ",
    ),
    Report(
        "vllm-project/vllm#6329",
        "two machines, the connection fails without a reason",
        {
            "job.log": prefixed(
                "[rank0]: ",
                raised(
                    "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:"
                    "144] no error",
                    MINE,
                ),
            )
        },
        "full_mesh_failed",
        ("rank 0",),
    ),
    Report(
        "RLinf/RLinf#1378",
        "after a lost connection a thread reads bytes of something else",
        {
            "rank_0.log": f"[ERROR Rank-0] Broadcast failed on ProcessGroup 7 with error: {VICTIM}. Args\n",
            "rank_1.log": "Exception in thread Thread-6 (_run_queue):\n"
            + raised(
                "ValueError: Unsupported object type: 1163947680",
                "/opt/venv/lib/python3.11/threading.py",
                MINE,
            ),
        },
        "own_error",
        ("rank 1",),
    ),
    Report(
        "PaddlePaddle/PaddleSpeech#181",
        "the process of a multiprocessing manager is gone",
        {
            "job.log": raised(
                "ConnectionResetError: [Errno 104] Connection reset by peer",
                MINE,
                "/usr/lib/python3.11/multiprocessing/managers.py",
                "/usr/lib/python3.11/multiprocessing/connection.py",
            )
        },
        "own_error",
        ("job.log",),
    ),
    Report(
        "showlab/EgoVLP#21",
        "only torchrun's line and its exception were kept",
        {
            "job.log": "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: "
            "40) of binary: /opt/venv/bin/python\n"
            + raised(
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
                f"{SITE}/torch/distributed/run.py",
            )
        },
        "rank_killed",
        ("local rank 3",),
    ),
    Report(
        "MIC-DKFZ/nnUNet#1343",
        "too many threads for the user's limit",
        {
            "job.log": "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily "
            "unavailable\nOpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 513046 max\n"
            * 3
            + raised("RuntimeError: One or more background workers are no longer alive.", MINE)
        },
        "too_many_threads",
        ("job.log",),
    ),
    Report(
        "ultralytics/yolov5#5086",
        "two OpenMP libraries on Windows",
        {
            "job.log": "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.\n"
            "OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program.\n"
        },
        "openmp_twice",
        ("job.log",),
    ),
    Report(
        "liznerski/fcdd#2",
        "a lambda in the dataset, loader workers on Windows",
        {
            "job.log": raised(
                "AttributeError: Can't pickle local object 'Digits.__init__.<locals>.<lambda>'",
                r"C:\work\fit.py",
                r"C:\py\lib\multiprocessing\reduction.py",
            )
            + raised("EOFError: Ran out of input", "<string>", r"C:\py\lib\multiprocessing\spawn.py")
        },
        "spawn_not_picklable",
        ("job.log",),
    ),
    Report(
        "QianChen113/RD3D#9",
        "a loader worker on Windows has no memory to start",
        {
            "job.log": raised("EOFError: Ran out of input", "<string>", r"C:\py\lib\multiprocessing\spawn.py")
            + raised("MemoryError", "<string>", r"C:\py\lib\multiprocessing\spawn.py")
        },
        "out_of_memory",
        ("job.log",),
    ),
    Report(
        "facebookincubator/submitit#1708",
        "SLURM requeues the job",
        {
            "slurm.err": "slurmstepd: error: *** STEP 608.0 ON node-a CANCELLED AT 2026-02-03T02:06:12 DUE TO JOB "
            "REQUEUE ***\nslurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused\nsrun: error: "
            "node-a: tasks 2-3: Exited with exit code 1\n",
            "rank_2.log": raised(f"RuntimeError: {VICTIM}", MINE),
        },
        "job_cancelled",
    ),
    Report(
        "ZettaAI/zetta_utils#671",
        "SLURM's time limit",
        {
            "slurm.err": "srun: Job step aborted: Waiting up to 47 seconds for job step to finish.\nslurmstepd: error: "
            "*** STEP 494583.0 ON node-a CANCELLED AT 2026-02-03T09:09:37 DUE TO TIME LIMIT ***\n"
        },
        "job_cancelled",
    ),
    Report(
        "hkust-nlp/simpleRL-reason#17",
        "Ray: a rank lost another one that the system killed",
        {"job.log": prefixed("(Worker pid=31) ", raised(f"RuntimeError: {VICTIM}", MINE)) + RAYLET},
        "rank_killed",
    ),
    Report(
        "OpenRLHF/OpenRLHF#936",
        "Ray ends a task as memory runs low",
        {
            "job.log": "\x1b[36m(Worker pid=31)\x1b[0m "
            + VICTIM
            + "\nray.exceptions.OutOfMemoryError: Task was killed "
            "due to the node running low on memory.\n"
        },
        "out_of_memory",
    ),
    Report(
        "Lightning-AI/litData#562",
        "every rank looks for a cache that another one makes",
        {
            "job.log": "".join(
                prefixed(
                    f"[rank{rank}]: ",
                    raised(
                        "FileNotFoundError: The provided dataset path `/data/cache/a1` does not exist.", MINE
                    ),
                )
                for rank in (0, 3)
            )
            + torchrun((0, 1), (3, 1), (1, -15), (2, -15))
        },
        "own_error",
        ("rank 0", "rank 3"),
    ),
    Report(
        "mila-iqia/milabench#367",
        "a file is missing in a loader worker of one rank",
        {
            "job.log": prefixed(
                "[rank1]: ",
                raised("FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 2.", MINE)
                + "Original "
                + raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/7.png'", MINE),
            )
            + prefixed("[rank0]: ", raised(f"RuntimeError: {VICTIM}", MINE))
            + torchrun((1, 1), (0, 1))
        },
        "own_error",
        ("rank 1",),
    ),
    Report(
        "rasbt/LLMs-from-scratch#40",
        "more ranks than GPUs, mp.spawn",
        {"job.log": spawned(0, raised("RuntimeError: CUDA error: invalid device ordinal", MINE))},
        "own_error",
        ("rank 0",),
    ),
    Report(
        "andreeaiana/newsreclib#32",
        "a tensor on the CPU is gathered over NCCL",
        {
            "job.log": raised(
                "RuntimeError: Tensors must be CUDA and dense",
                MINE,
                f"{SITE}/torch/distributed/distributed_c10d.py",
            )
            + torchrun((0, 1))
        },
        "wrong_device",
        ("rank 0",),
    ),
    Report(
        "X-PLUG/mPLUG-Owl#86",
        "parameters differ between ranks",
        {
            "job.log": raised(
                "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 128 params, while rank 0 has "
                "inconsistent 0 params.",
                MINE,
            )
        },
        "models_differ",
        ("rank 2", "rank 0"),
    ),
    Report(
        "torchgeo/torchgeo#1198",
        "warnings of sockets on Windows, then a checkpoint that nobody wrote",
        {
            "job.log": "[W socket.cpp:601] [c10d] The client socket has failed to connect to [t2]:52826 (system error: "
            "10049 - The requested address is not valid in its context.).\n"
            + raised("FileNotFoundError: [Errno 2] No such file or directory: 'best.ckpt'", r"C:\work\fit.py")
        },
        "own_error",
        ("job.log",),
    ),
    Report(
        "henrywoo/pyllama#32",
        "a checkpoint was not downloaded whole",
        {
            "job.log": raised(
                "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
                MINE,
                f"{SITE}/torch/serialization.py",
            )
            + torchrun((0, 1))
        },
        "checkpoint_unfinished",
        ("rank 0",),
    ),
    Report(
        "Lightning-AI/pytorch-lightning#16673",
        "a rank of an older torch lost another one while it made DDP, and aborts",
        {
            "job.log": raised(
                "RuntimeError: Connection reset by peer", MINE, f"{SITE}/torch/distributed/utils.py"
            )
            + "terminate called after throwing an instance of 'std::system_error'\n  what():  Broken pipe\n"
        },
        "peer_gone",
    ),
    Report(
        "tdrussell/diffusion-pipe#333",
        "rank 0 ends while it reads a dataset; the others lose the store",
        {
            "job.log": "[rank2]:[W729 10:15:17.529 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76, "
            "addr=[localhost]:60902, remote=[localhost]:29500): Connection reset by peer\n"
            + torchrun((0, -9), (2, -15))
        },
        "rank_killed",
        ("rank 0",),
    ),
    Report(
        "lucidrains/ring-attention-pytorch#10",
        "mp.spawn shows the rank that lost another one first",
        {
            "job.log": spawned(
                1,
                raised(
                    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                    "[127.0.0.1]:38032",
                    MINE,
                    f"{SITE}/torch/distributed/distributed_c10d.py",
                ),
            )
        },
        "peer_gone",
    ),
)

"""Reports of what launchers say, and of how groups are made, reworded as in public_reports."""

from support.public_logs import SITE, Report, prefixed, raised

MINE = "/home/me/fit.py"
DS = (
    "[2026-02-03 13:11:27,879] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266\n[2026-02-03 "
    "13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'fit.py', "
    "'--local_rank=1', '--zero_stage', '2'] exits with return code = {0}\n"
)
MPICH = (
    "=" * 83
    + (
        "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 9665 RUNNING AT node-a\n=   "
        "EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n"
    )
    + "=" * 83
    + (
        "\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nThis "
        "typically refers to a problem with your application.\n"
    )
)
NCCL = (
    "torch.distributed.DistBackendError: [{0}] is setting up NCCL communicator and retrieving ncclUniqueId "
    "from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: Connection reset "
    "by peer\n. This may indicate a possible application crash on rank 0 or a network set up issue."
)
REPORTS: tuple[Report, ...] = (
    Report(
        "deepspeedai/DeepSpeed#3232: DeepSpeed's launcher reports a killed process",
        {"job.log": DS.format(-9)},
        "rank_killed",
    ),
    Report(
        "deepspeedai/DeepSpeed#4000: DeepSpeed's launcher, exit code -7",
        {"job.log": DS.format(-7)},
        "shared_memory_full",
    ),
    Report(
        "deepspeedai/DeepSpeed#5302: DeepSpeed's launcher, exit code 1 and no error",
        {"job.log": DS.format(1)},
        "launcher_summary",
    ),
    Report("openai/jukebox#155: MPICH reports a killed process", {"job.log": MPICH}, "rank_killed"),
    Report(
        "FedML-AI/FedML#588: mpirun reports a crash",
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
        "facebookresearch/fairseq#2527: mp.spawn, exit code 17",
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
        "MarvinTeichmann/MultiNet#61: a launcher's subprocess crashed",
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
        "kohya-ss/sd-scripts#87: the script's path has a blank",
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
        "vllm-project/vllm#6775: Ray's workers cannot connect",
        {
            "job.log": (
                "(RayWorkerWrapper pid=22, ip=192.0.2.8) ERROR 07-25 06:51:17 worker_base.py:382] "
                "RuntimeError: Gloo connectFullMesh failed with "
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error [repeated 12x across "
                "cluster]\n(RayWorkerWrapper pid=22) [rank7]:[E ProcessGroupGloo.cpp:144] Gloo "
                "connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
            )
        },
        "full_mesh_failed",
        ("rank 7",),
    ),
    Report(
        "pytorch/pytorch#30375: Gloo aborts as it makes its device on two VMs",
        {
            "job.log": (
                "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce "
                "fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:281] rv != -1. -1\n"
            )
        },
        "host_unnamed",
        ("job.log",),
    ),
    Report(
        "hpcaitech/ColossalAI#2889: WORLD_SIZE is 0",
        {
            "job.log": raised(
                (
                    "RuntimeError: [enforce fail at ..\\third_party\\gloo\\gloo\\context.cc:28] "
                    "rank < size. 0 vs 0"
                ),
                MINE,
                f"{SITE}/torch/distributed/distributed_c10d.py",
            )
        },
        "rank_out_of_range",
        ("job.log",),
    ),
    Report(
        "hiyouga/LlamaFactory#5769: ranks 2 and 3 lost the store of rank 0",
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
        "rwth-i6/returnn#1621: the loader's own group times out in evaluation",
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
        "SpongebBob/Finetune-ChatGLM2-6B#6: a rank is busy with data while the other waits in the first barrier",
        {
            "job.log": raised(
                (
                    "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, "
                    "for key: store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)"
                ),
                MINE,
                f"{SITE}/torch/distributed/distributed_c10d.py",
            )
        },
        "clients_missing",
        ("job.log",),
    ),
    Report(
        "determined-ai/determined#8915: the cluster's master ends the launcher",
        {
            "job.log": (
                "[2026-02-27T21:35:32.106Z] fa88 || WARNING: "
                "torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down "
                "workers\n[2026-02-27T21:35:32.106Z] fa88 || WARNING: "
                "torch.distributed.elastic.multiprocessing.api:Sending process 165 closing signal SIGTERM\n"
            )
        },
        "launcher_terminated",
    ),
    Report(
        "NVIDIA/Megatron-LM#1880: exit code -11, and a line of the launcher that is broken",
        {
            "job.log": (
                " | lm loss: 1.42E+00 | grad norm: 13.636 |\nW1223 05:17:58.996 3304089 "
                "site-packages/torch/distributed/elastic/multiprocessing/api.py:908] Sending "
                "process 3304210 closing signal SIGTERM\nE1223 05:18:02.971 3304089 "
                "site-packages/torch/distributed/elastic/multiprocessing/api.py:882] failed "
                "(exitcode: -11) local_rank: 0 (pid: 3304209) of binary: /root/miniconda\n"
                "3/envs/x/bin/python3.12\n"
            )
        },
        "rank_crashed",
        ("local rank 0",),
    ),
    Report(
        "raywzy/ICT#38: mp.spawn, SIGKILL",
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
        "ray-project/ray#36317: a barrier among Ray's actors times out",
        {
            "job.log": "(CommActor pid=77) "
            + (
                "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting "
                "30000ms for recv operation to complete\n"
            )
        },
        "receive_timeout",
    ),
    Report(
        "pytorch/pytorch#76760: errors without a text on all ranks but 0",
        {"job.log": raised("RuntimeError", MINE) * 3},
        "own_error",
        ("job.log",),
    ),
)

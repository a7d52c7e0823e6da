"""Messages as they are printed, each with an innocent look-alike: (kind, text, facts, look-alike)."""

from __future__ import annotations

# Longer than 400 lines: it is one list, with an entry for each text.
SPAWN = '  File "/usr/lib/python3.11/multiprocessing/reduction.py", line 60, in dump\n'
DDP = '  File "/x/torch/nn/parallel/distributed.py", line 1886, in forward\n'
ELASTIC = "torch.distributed.elastic."

SEEN_WITH_LOOKALIKES: list[tuple[str, str, dict[str, str], str]] = [
    (
        "page_file",
        "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "
        '"C:\\py\\lib\\site-packages\\torch\\lib\\cublas64_12.dll" or one of its dependencies.',
        {},
        "notes: a paging file of 16 GB is enough for this machine",
    ),
    (
        "shared_memory_full",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        {},
        "loader: passes batches through shared memory, limit 8 GB",
    ),
    (
        "shared_memory_full",
        "RuntimeError: unable to write to file </torch_41_3203916_0>: No space left on device (28)",
        {},
        "removed the cache /data/torch_extensions: 4 GB of space left on the device",
    ),
    (
        "shared_memory_full",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        {},
        "pci: bus error counter is 0",
    ),
    (
        "loader_worker_killed",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        {"pid": "4711"},
        "DataLoader worker (pid 4711) started",
    ),
    (
        "loader_worker_crashed",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Aborted. ",
        {"signal": "Aborted"},
        "DataLoader worker (pid 4711) is started by signal",
    ),
    (
        "out_of_memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        {},
        "memory.events: low 0 high 0 max 0 oom 0 oom_kill 0",
    ),
    (
        "out_of_memory",
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
        {},
        '"State": {"Status": "running", "OOMKilled": false, "Dead": false}',
    ),
    (
        "out_of_memory",
        "Task was killed due to the node running low on memory. Memory on the node (IP: 10.0.0.7) was 61/64GB",
        {},
        "node 10.0.0.7: memory 12/64GB",
    ),
    ("disk_full", "OSError: [Errno 28] No space left on device", {}, "disk /data: 40 GB space left"),
    (
        "terminal_closed",
        f"{ELASTIC}multiprocessing.api.SignalException: Process 792 got signal: 1",
        {},
        "signal: 1 of 3 sensors is weak",
    ),
    (
        "job_cancelled",
        "slurmstepd: error: *** STEP 49.0 ON n1 CANCELLED AT 2026-02-03T09:09:37 DUE TO TIME LIMIT ***",
        {"reason": "TIME LIMIT"},
        "early stopping: the rest of the epochs is cancelled",
    ),
    (
        "launcher_terminated",
        f"{ELASTIC}multiprocessing.api.SignalException: Process 792 got signal: 15",
        {},
        "handler for SIGTERM (signal: 15) installed",
    ),
    (
        "illegal_instruction",
        "  rank      : 1 (local_rank: 1)\n  exitcode  : -4 (pid: 9)\n  traceback : Signal 4 (SIGILL) received by PID 9",
        {"rank": "1"},
        "cpu flags: avx2 avx512f, no instruction is missing",
    ),
    (
        "rank_crashed",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
        {},
        "segmentation: mIoU 0.71, fault rate 0.02",
    ),
    (
        "rank_killed",
        "run.sh: line 7:  4711 Killed                  python fit.py",
        {},
        "Killed 3 zombies in level 2",
    ),
    ("rank_killed", "trainer-1 exited with code 137", {}, "trainer-1 exited with code 0"),
    (
        "rank_aborted",
        "terminate called after throwing an instance of 'c10::Error'\n  what():  device lost",
        {"class": "c10::Error"},
        "the run was aborted by early stopping at epoch 3",
    ),
    ("interrupted", "KeyboardInterrupt", {}, "press Ctrl-C to interrupt"),
    (
        "rank_terminated",
        "  exitcode  : -15 (pid: 9)\n  traceback : Signal 15 (SIGTERM) received by PID 9",
        {},
        "handler for SIGTERM (signal: 15) installed",
    ),
    (
        "rendezvous_closed",
        f"{ELASTIC}rendezvous.api.RendezvousClosedError",
        {},
        "rendezvous handler closed after epoch 3, all is well",
    ),
    (
        "rendezvous_timeout",
        f"{ELASTIC}rendezvous.api.RendezvousTimeoutError",
        {},
        "rendezvous timeout is set to 900 s",
    ),
    (
        "rendezvous_unreachable",
        f"{ELASTIC}rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
        {},
        "rendezvous: connected to the endpoint node-a:29400",
    ),
    (
        "local_rank_argument",
        "fit.py: error: unrecognized arguments: --local-rank=1",
        {"local_rank": "1"},
        "fit.py: error: unrecognized arguments: --learning-rate 0.1",
    ),
    (
        "launcher_summary",
        f"{ELASTIC}multiprocessing.errors.ChildFailedError:",
        {},
        "the child process started",
    ),
    (
        "main_guard",
        "RuntimeError: \n        An attempt has been made to start a new process before the\n"
        "        current process has finished its bootstrapping phase.",
        {},
        "bootstrapping phase of the confidence interval: 1000 samples",
    ),
    (
        "spawn_from_notebook",
        "AttributeError: Can't get attribute 'train' on <module '__main__' (built-in)>",
        {"name": "train"},
        "AttributeError: module 'data' has no attribute 'train'",
    ),
    (
        "spawn_not_picklable",
        f"{SPAWN}AttributeError: Can't pickle local object 'main.<locals>.worker'",
        {"name": "main.<locals>.worker"},
        '  File "/x/torch/serialization.py", line 944, in save\n'
        "AttributeError: Can't pickle local object 'main.<locals>.schedule'",
    ),
    (
        "spawn_not_picklable",
        f"{SPAWN}TypeError: cannot pickle 'Environment' object",
        {},
        "pickle: 3 objects written to samples.pkl",
    ),
    (
        "graph_changed",
        "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in first "
        "iteration, but then got used in the second iteration. this is not compatible with static_graph set to True.",
        {},
        "DDP(static_graph=True): the graph is the same in each iteration",
    ),
    (
        "graph_changed",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
        "error indicates that your training graph has changed in this iteration, e.g., one parameter is used in first "
        "iteration, but then got unused in the second iteration. this is not compatible with static_graph set to True.",
        {},
        "finished reduction of the learning rate",
    ),
    (
        "unused_parameters_lightning",
        "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss "
        "returned by training_step. If this is intentional, you must enable the detection of unused parameters in DDP",
        {},
        "lightning: 12 parameters are frozen and were not used",
    ),
    (
        "unused_parameters_trainer",
        '  File "/x/site-packages/transformers/trainer.py", line 2118, in train\n'
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        {},
        '  File "/x/site-packages/transformers/trainer.py", line 2118, in train',
    ),
    (
        "buffer_changed",
        f"{DDP}RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.FloatTensor [64]] is at version 3; expected version 2 instead.",
        {},
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.FloatTensor [64]] is at version 3; expected version 2 instead.",
    ),
    (
        "sync_batchnorm",
        "ValueError: SyncBatchNorm layers only work with GPU modules",
        {},
        "converted 12 layers to SyncBatchNorm",
    ),
    (
        "nothing_to_train",
        "RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
        "gradient.",
        {},
        "the backbone doesn't have any parameters that require a gradient",
    ),
    (
        "module_keys",
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight".\n\t'
        'Unexpected key(s) in state_dict: "module.fc.weight".',
        {"key": "fc.weight"},
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "head.weight".',
    ),
    (
        "wrapped_attribute",
        "AttributeError: 'DistributedDataParallel' object has no attribute 'generate'",
        {"name": "generate"},
        "AttributeError: 'Net' object has no attribute 'generate'",
    ),
    (
        "bucket_strides",
        "UserWarning: Grad strides do not match bucket view strides. This may indicate grad was not created according "
        "to the gradient layout contract",
        {},
        "conv: strides (2, 2), bucket 3",
    ),
    (
        "scalar_type",
        '  File "/x/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
        "RuntimeError: Invalid scalar type",
        {},
        "TypeError: invalid scalar type string in the table's header",
    ),
    (
        "object_mixed_up",
        '  File "/x/torch/distributed/distributed_c10d.py", line 3000, in _tensor_to_object\n'
        "_pickle.UnpicklingError: invalid load key, '\\x00'.",
        {},
        "  File \"/home/me/data.py\", line 3, in load\n_pickle.UnpicklingError: invalid load key, 'v'.",
    ),
    (
        "barrier_victim",
        "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank.",
        {"look_at": "0"},
        "Rank 1 reached the barrier",
    ),
    (
        "address_family",
        "RuntimeError: [enforce fail at /gloo/transport/tcp/address.cc:30] ss1.ss_family == ss2.ss_family. 2 vs 10",
        {},
        "model family mismatch: bert and gpt",
    ),
    (
        "port_out_of_range",
        "ValueError: port must have value from 0 to 65535 but was 99999.",
        {"port": "99999"},
        "export must have value from 0 to 65535",
    ),
    (
        "too_many_threads",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable",
        {},
        "pthread_create: 64 threads",
    ),
    (
        "openmp_twice",
        "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.",
        {},
        "OMP: Info #155: KMP_AFFINITY is set",
    ),
    (
        "rank_out_of_range",
        "RuntimeError: [enforce fail at gloo/context.cc:28] rank < size. 0 vs 0",
        {"number": "0", "world_size": "0"},
        "top-k: the rank of this sample is 3",
    ),
    (
        "clients_missing",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)",
        {"came": "1", "world_size": "2"},
        "Rank 1: Completed store-based barrier for key:store_based_barrier_key:1 with 2 nodes.",
    ),
    (
        "host_unnamed",
        "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:281] rv != -1. -1",
        {},
        "assert rv != -1 in device.cc",
    ),
    (
        "script_missing",
        "python: can't open file 'C:/Users/My': [Errno 2] No such file or directory",
        {"path": "C:/Users/My"},
        "FileNotFoundError: [Errno 2] No such file or directory: 'labels.csv'",
    ),
    (
        "store_lost",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by store->get('0'), but store->get('0') got error: Connection reset by peer",
        {"missing": "0"},
        "retrieving labels from [0] via the cache",
    ),
    ("launcher_broken", "failed to create process.", {}, "created process 7 for rank 1"),
    (
        "host_unnamed",
        "RuntimeError: GlooDeviceFactory::makeUVDevice(): interface or hostname can't be empty",
        {},
        "config: the hostname can't be empty",
    ),
    (
        "average_unsupported",
        "RuntimeError: Cannot use ReduceOp.AVG with Gloo",
        {"op": "AVG"},
        "using ReduceOp.AVG with NCCL",
    ),
    (
        "not_contiguous",
        f"{SPAWN.replace('multiprocessing/reduction', 'torch/distributed/c10d')}ValueError: Tensors must be contiguous",
        {},
        "preprocess: tensors must be contiguous pieces of 4 s",
    ),
    (
        "one_sample",
        "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])",
        {},
        "got more than 1 value per channel",
    ),
    (
        "checkpoint_without_gradient",
        "x/checkpoint.py:86: UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n"
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        {},
        "UserWarning: None of the inputs have requires_grad=True. Gradients will be None",
    ),
    (
        "loss_without_gradient",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        {},
        "the body does not require grad and stays as it is",
    ),
    (
        "checkpoint_unfinished",
        'Traceback (most recent call last):\n  File "/x/torch/serialization.py", line 620, in _load\n'
        "RuntimeError: storage has wrong size: expected -922 got 256",
        {},
        "storage has the wrong size class: expected standard got nearline",
    ),
    (
        "checkpoint_unfinished",
        'Traceback (most recent call last):\n  File "/x/torch/serialization.py", line 1549, in load\n'
        "EOFError: Ran out of input",
        {},
        # A loader's worker is gone, and torch.load only warns.
        "/x/torch/serialization.py:1328: FutureWarning: weights_only=False\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3/multiprocessing/connection.py", line 399, in _recv\nEOFError',
    ),
    (
        "launcher_broken",
        "slurmstepd: error: execve(): torchrun: No such file or directory",
        {"program": "torchrun"},
        "slurmstepd: error: task_p_pre_launch: no cpu binding",
    ),
    (
        "launcher_broken",
        "/var/spool/job7/slurm_script: line 12: torchrun: command not found",
        {"program": "torchrun"},
        # A job may be well without it.
        "/home/me/.bashrc: line 3: module: command not found",
    ),
    (
        "launcher_broken",
        "'torchrun' is not recognized as an internal or external command,",
        {"program": "torchrun"},
        "'nvidia-smi' is not recognized as an internal or external command,",
    ),
    (
        "launcher_broken",
        'Error: failed to create containerd task: exec: "torchrun": executable file not found in $PATH: unknown',
        {"program": "torchrun"},
        "executable file of the container: /opt/run",
    ),
    (
        "host_unnamed",
        "[enforce fail at gloo/transport/uv/device.cc:129] rp != nullptr. Unable to find address for: my-laptop",
        {"name": "my-laptop"},
        "lookup: rp != nullptr, 3 addresses",
    ),
    (
        "sizes_differ",
        "libc++abi: terminating due to uncaught exception of type gloo::EnforceNotMet: [enforce fail at "
        "gloo/transport/uv/pair.cc:248] op.nread == op.preamble.nbytes. ",
        {},
        "read: op.nread is 7",
    ),
    (
        "rank_aborted",
        "libc++abi: terminating with uncaught exception of type c10::Error: device lost",
        {"class": "c10::Error"},
        "server: terminating with 3 clients",
    ),
    (
        "rank_aborted",
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at "
        "gloo/transport/tcp/pair.cc:592] fd_ == FD_INVALID. 46 vs -1. File descriptor not closed",
        {"class": "gloo::EnforceNotMet"},
        "job 7: terminate called by the user",
    ),
    (
        "connection_filtered",
        "RuntimeError: [/gloo/transport/tcp/pair.cc:611] Connect timeout [10.0.0.7]:27023",
        {"address": "10.0.0.7", "port": "27023"},
        "redis: Connect timeout [10.0.0.7]:6379, again in 3 s",
    ),
    (
        "store_failed",
        "torch.distributed.DistNetworkError: Unknown error",
        {},
        "handles DistNetworkError since version 3",
    ),
]

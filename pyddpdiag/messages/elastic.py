"""Messages of torchrun: how nodes meet, what it passes to a script, and what starts it."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import ByShell, Run

# Other programs may be missing in a job that is well.
_STARTERS = r"torchrun|python[\d.]*|accelerate|mpirun|mpiexec|srun|horovodrun|deepspeed|ray"
_START = Run("torchrun --nproc-per-node 2 SCRIPT.py")
_NODES = Run(
    "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST-OF-NODE-0:29400 "
    "--rdzv-id A-NEW-ID SCRIPT.py"
)

MESSAGES: tuple[Message, ...] = (
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
)

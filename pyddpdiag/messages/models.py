"""Messages of DDP about the model."""

from __future__ import annotations

from pyddpdiag.messages.message import Message, text_pattern
from pyddpdiag.messages.shells import SetVariable

MESSAGES: tuple[Message, ...] = (
    Message(
        "unused_parameters",
        text_pattern(r"Expected to have finished reduction in the prior iteration"),
        "Some parameters got no gradient in the last iteration: forward did not use them, or their "
        "output is not part of "
        "the loss. DDP still waits for them.",
        "Use every parameter in forward and loss, or pass find_unused_parameters=True to DDP. "
        "TORCH_DISTRIBUTED_DEBUG=INFO names the parameters.",
        lines=(SetVariable("TORCH_DISTRIBUTED_DEBUG", "INFO"),),
    ),
    Message(
        "models_differ",
        text_pattern(
            r"DDP expects same model across all ranks, but Rank (?P<rank>\d+) has (?P<parameters>\d+) "
            r"params, while rank "
            r"(?P<other>\d+) has inconsistent (?P<other_parameters>\d+)",
            r"DDP expects same model across all ranks",
            r"params\[\d+\] in this process with sizes[^\n]*appears not to match",
        ),
        "The ranks have different models: other code, another configuration, or a branch that depends on the rank.",
        "Print [(n, p.shape) for n, p in model.named_parameters()] on each rank and compare; start all with the same "
        "script and options.",
    ),
    Message(
        "marked_twice",
        text_pattern(r"Expected to mark a variable ready only once"),
        "A parameter got its gradient twice in one backward pass: it is shared between two modules, or reentrant "
        "checkpointing runs it again.",
        "Use checkpoint(use_reentrant=False), or DDP(static_graph=True).",
    ),
    Message(
        "one_hook",
        text_pattern(r"register_comm_hook or register_builtin_comm_hook can only be called once"),
        "The DDP module has a communication hook, and takes one for good: a notebook's cell ran again, or a script "
        "registered another before.",
        "For another recorder: recorder.attach(ddp), after recorder.detach(ddp) if the one before is open. "
        "For another hook, make the DDP module again.",
    ),
)

"""Messages of DDP about the model, and about what it wraps: its buffers, its state and its attributes."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import Code, Run, SetVariable

_LIGHTNING = re.compile(r"lightning", re.IGNORECASE)
_TRAINER = re.compile(r"transformers[/\\]trainer\.py")
_WRAP_LATER = (
    "wrap the model after replacing them: "
    "DDP does not reduce gradients of new layers, and the ranks' models drift apart."
)
_USE_EACH = (
    "Use each in forward and loss, or pass find_unused_parameters=True to DDP if they are left out on purpose. If they "
    f"belong to a layer, such as the head, that was replaced after wrapping, {_WRAP_LATER} find_unused_parameters=True "
    "would only hide that."
)
_NO_GRADIENT = r"element \d+ of tensors does not require grad and does not have a grad_fn"
_CHECKPOINTING = re.compile(r"None of the inputs have requires_grad=True|torch[/\\]utils[/\\]checkpoint\.py")
_UNUSED = r"Expected to have finished reduction in the prior iteration"


_DDP = re.compile(
    r"DistributedDataParallel|nn[/\\]parallel[/\\]distributed|\[rank\d+\]|torch[./\\]distributed|torchrun"
    r"|Process \d+ terminated with the following|\bgloo\b|\bddp\b",
    re.IGNORECASE,
)

MESSAGES: tuple[Message, ...] = (
    Message(
        "graph_changed",
        text_pattern(
            r"training graph has changed in this iteration", r"not compatible with static_graph set to True"
        ),
        "DDP was promised that every iteration uses the same parameters (static_graph=True), and one did not.",
        "Pass static_graph=False: with static_graph=True, find_unused_parameters=True has no effect. Where an "
        "iteration leaves parameters out on purpose, pass both, as in the line below. If layers were replaced or "
        f"frozen after wrapping, {_WRAP_LATER}",
        lines=(Code("ddp = DistributedDataParallel(net, static_graph=False, find_unused_parameters=True)"),),
    ),
    Message(
        "unused_parameters_lightning",
        text_pattern(r"your LightningModule has parameters that were not used in producing", _UNUSED),
        "Some parameters of the LightningModule have no part in the loss that training_step returns. DDP still waits "
        "for their gradients.",
        'Use every parameter in the loss, or Trainer(strategy="ddp_find_unused_parameters_true"). If a layer '
        "was replaced after the strategy had wrapped the module, replace it in configure_model or before fit: DDP "
        "does not reduce the new one's gradients.",
        lines=(
            Code('trainer = Trainer(strategy="ddp_find_unused_parameters_true")'),
            SetVariable("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ),
        needs=_LIGHTNING,
    ),
    Message(
        "unused_parameters_trainer",
        text_pattern(_UNUSED),
        "Some parameters of the model have no part in the loss, and DDP, which the Trainer made, "
        "still waits for their gradients.",
        "Use every parameter in the loss, or set ddp_find_unused_parameters=True in TrainingArguments. If a layer was "
        "replaced after the Trainer had wrapped the model, replace it before Trainer(...): DDP does not reduce the new "
        "one's gradients.",
        lines=(Run("torchrun --nproc-per-node 2 SCRIPT.py --ddp_find_unused_parameters True"),),
        needs=_TRAINER,
    ),
    Message(
        "unused_parameters_named",
        text_pattern(
            _UNUSED
            + r"(?:.|\n){0,4000}?did not receive grad for rank (?P<rank>\d+): (?P<parameter>[a-z_][\w.]*)"
        ),
        "Parameters of rank {rank}, {parameter} among them, got no gradient in the last iteration: forward did not use "
        "them, or their output is not part of the loss. DDP still waits for them.",
        _USE_EACH,
    ),
    Message(
        "unused_parameters",
        text_pattern(_UNUSED),
        "Some parameters got no gradient in the last iteration: "
        "forward did not use them, or their output is not part of the loss. DDP still waits for them.",
        f"TORCH_DISTRIBUTED_DEBUG=INFO names the parameters. {_USE_EACH}",
        lines=(SetVariable("TORCH_DISTRIBUTED_DEBUG", "INFO"),),
    ),
    Message(
        "models_differ",
        text_pattern(
            r"DDP expects same model across all ranks, but Rank (?P<rank>\d+) has (?P<parameters>\d+) "
            r"params, while rank (?P<other>\d+) has inconsistent (?P<other_parameters>\d+)",
            r"DDP expects same model across all ranks",
            r"params\[\d+\] in this process with sizes[^\n]*appears not to match",
        ),
        "The ranks have different models: other code, another configuration, or a branch that depends on the rank. "
        "Where one has 0 parameters, it did not answer: it ended, or does something else.",
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
        "one_sample",
        text_pattern(r"Expected more than 1 value per channel when training"),
        "BatchNorm got a batch of a single sample on this rank: the last one of an epoch, where the rank's share of "
        "the data is one more than a multiple of the batch size.",
        "Leave that batch out on all ranks: DataLoader(..., drop_last=True). An evaluation calls net.eval() first.",
        lines=(Code("loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)"),),
    ),
    Message(
        "checkpoint_without_gradient",
        text_pattern(_NO_GRADIENT),
        "Reentrant checkpointing gives no gradient to what it runs unless one of its inputs needs one, and none did: "
        "the layers below are frozen, or it is the first layer.",
        "Use the other kind: checkpoint(..., use_reentrant=False); in transformers gradient_checkpointing_enable("
        'gradient_checkpointing_kwargs={"use_reentrant": False}).',
        lines=(Code("output = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)"),),
        needs=_CHECKPOINTING,
    ),
    Message(
        "loss_without_gradient",
        text_pattern(_NO_GRADIENT),
        "The loss does not depend on any parameter that needs a gradient: all that this batch goes through is frozen, "
        "or detach(), no_grad() or item() stands in between.",
        "Print [n for n, p in net.named_parameters() if p.requires_grad], and take the loss from the module's output.",
        lines=(Code("print([n for n, p in net.named_parameters() if p.requires_grad])"),),
    ),
    Message(
        "one_hook",
        text_pattern(r"register_comm_hook or register_builtin_comm_hook can only be called once"),
        "The DDP module has a communication hook already, and keeps it for good: a notebook's cell ran again, or the "
        "script had registered another one.",
        "For another recorder: recorder.attach(ddp), after recorder.detach(ddp) if the one before is open. For "
        "another hook, create the DDP module again.",
    ),
    Message(
        "buffer_changed",
        text_pattern(
            r"modified by an inplace operation: \[torch\.(?:cuda\.)?(?:Float|Half|BFloat16|Long|Double)Tensor \[\d*\]\]"
        ),
        "DDP copied rank 0's buffers (BatchNorm's running averages) between two forward passes, and the backward pass "
        "of the first one needs the old ones.",
        "Pass broadcast_buffers=False to DDP, or put both inputs into one forward pass.",
        lines=(Code("ddp = DistributedDataParallel(net, broadcast_buffers=False)"),),
        needs=_DDP,
    ),
    Message(
        "sync_batchnorm",
        text_pattern(r"SyncBatchNorm (?:layers only work with|expected input tensor to be on) GPU"),
        "SyncBatchNorm needs a GPU; over Gloo, on CPUs, there is none.",
        "Use BatchNorm (leave convert_sync_batchnorm out), or GroupNorm, which needs no other rank.",
        lines=(Code("norm = torch.nn.GroupNorm(num_groups=8, num_channels=64)"),),
    ),
    Message(
        "nothing_to_train",
        text_pattern(r"not needed when a module doesn't have any parameters? that requires? a gradient"),
        "All parameters of the module are frozen (requires_grad=False), so DDP has nothing to reduce.",
        "Wrap only modules that train, after unfreezing them; use the frozen one as it is.",
        lines=(
            Code(
                "ddp = DistributedDataParallel(net) if any(p.requires_grad for p in net.parameters()) else net"
            ),
        ),
    ),
    Message(
        "module_keys",
        text_pattern(r"(?:Missing|Unexpected) key\(s\) in state_dict: \"module\.(?P<key>[\w.]+)\""),
        "The state_dict was saved from the DDP module and is loaded into the plain one, or the other way round: DDP "
        'puts "module." before each key.',
        "Save ddp.module.state_dict(). The line takes the prefix out of a state_dict that has it.",
        lines=(Code('torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")'),),
    ),
    Message(
        "wrapped_attribute",
        text_pattern(r"'(?:DistributedDataParallel|DataParallel)' object has no attribute '(?P<name>\w+)'"),
        "DDP passes on only forward; other methods and attributes belong to the module that it wraps.",
        "Use ddp.module.NAME. What needs gradients must go through ddp(...), or DDP does not reduce them.",
        lines=(Code("output = ddp.module.{name}(batch)"),),
    ),
    Message(
        "bucket_strides",
        text_pattern(r"Grad strides do not match bucket view strides"),
        "A gradient lies in memory in another order than DDP's bucket (channels_last, a transposed weight), so each "
        "backward pass copies it. The sums are right; it costs some time.",
        "Call .contiguous() on the parameter before wrapping, or choose the memory format before DDP.",
        role=Role.WARNING,
        lines=(Code("net = net.to(memory_format=torch.contiguous_format)"),),
    ),
)

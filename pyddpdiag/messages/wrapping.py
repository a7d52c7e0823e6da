"""Messages about what DDP wraps: its buffers, its state and its attributes."""

from __future__ import annotations

import re

from pyddpdiag.messages.message import Message, Role, text_pattern
from pyddpdiag.messages.shells import Code

_DDP = re.compile(
    r"DistributedDataParallel|nn[/\\]parallel[/\\]distributed|\[rank\d+\]|torch[./\\]distributed|torchrun"
    r"|Process \d+ terminated with the following|\bgloo\b|\bddp\b",
    re.IGNORECASE,
)

MESSAGES: tuple[Message, ...] = (
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

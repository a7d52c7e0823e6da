"""A recorder for a script that was not changed: every DistributedDataParallel that trains is attached to it.

`watch_imports` runs before the script, in every Python process of the job. Nothing here may end the script or load
torch before the script does; what cannot be recorded is said in one line.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.integrations import alone, asked, early_end
from pyddpdiag.integrations.alone import AloneWatch
from pyddpdiag.integrations.begun import given_rank, launched_as_rank, notes
from pyddpdiag.integrations.between import between
from pyddpdiag.integrations.contained import contained
from pyddpdiag.integrations.imports import Finder
from pyddpdiag.output import say
from pyddpdiag.start import environment, marks
from pyddpdiag.system.clock import monotonic_ns

if TYPE_CHECKING:
    from pyddpdiag.cures.applied import Applied
    from pyddpdiag.integrations.watched import Watched
    from pyddpdiag.record.set_up import SetUp

_DDP: Final = "torch.nn.parallel.distributed"


def watch_imports() -> None:
    """Watches DDP from its import on, if the environment asks for it."""
    if asked.FOLDER not in os.environ or any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    with contained:
        environment.keep()
        _early.arrange(_fails)
        if launched_as_rank(os.environ):
            _notes_begin((), {})
        _watch_modules()


def _loaded(name: str, module: ModuleType) -> None:
    with contained:
        if name == _DDP:
            marks.note("loaded_ns")
            # Not in a launcher, nor in a worker that loads batches.
            if "RANK" in os.environ and multiprocessing.parent_process() is None:
                _set_up_begins()
        _patch_once(_PATCHES[name], module)


def watch(watched: Watched) -> None:
    """Watches DDP and DataLoader in this process, whose torch is loaded, for this one from now on."""
    _state.watched = watched
    _watch_modules()


def _watch_modules() -> None:
    for name, patch in _PATCHES.items():
        _patch_once(patch, sys.modules.get(name))
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(_PATCHES, _loaded))


@dataclass
class _State:
    watched: Watched | None = None
    cures: Applied | None = None
    failed: bool = False
    announced: int = 0  # the id of the module whose call was seen, but not its forward pass
    begun: bool = False  # a watched DDP module has run, or none will; batches before belong to nobody
    called: bool = False  # it has begun, and the note of that is written
    set_up: SetUp | None = None  # looks at what comes before the first pass


_state = _State()
_early = early_end.Watch()
_alone = AloneWatch(lambda: _trains_alone())


def _watched() -> Watched | None:
    """What watches this process; made with the first DDP module, since torch is complete by then."""
    if _state.watched is None and not _state.failed:
        try:
            from pyddpdiag.integrations.watched import Watched

            folder, options = asked.folder() or None, {"lines": asked.lines()}
            _state.watched = Watched(
                folder, options, launch=asked.launch(), cures=_cures(), trial=asked.trial()
            )
        except Exception as error:
            _state.failed = True
            with contained:
                say(f"pyddpdiag run: nothing is recorded in process {os.getpid()}: {error}", sys.stderr)
    return _state.watched


def _cures() -> Applied | None:
    """What is applied in this process; None: nothing."""
    if _state.cures is None and not _state.failed:
        launch = asked.launch()
        if launch is None or not launch.cures:
            return None
        try:
            from pyddpdiag.cures.applied import Applied
            from pyddpdiag.cures.options import from_options

            _state.cures = Applied(from_options(launch.cures))
        except (PyddpdiagError, ImportError, ValueError) as error:
            _state.failed = True
            with contained:
                say(f"pyddpdiag run: nothing is applied in process {os.getpid()}: {error}", sys.stderr)
    return _state.cures


def _patch_once(patch: Callable[[Any], None], module: ModuleType | None) -> None:
    if module is None or hasattr(module, "_watched_by_pyddpdiag"):
        return
    try:
        patch(module)
    except Exception as error:
        say(f"pyddpdiag: it does not know this torch, and cannot watch all of it: {error}", sys.stderr)
    module._watched_by_pyddpdiag = True  # type: ignore[attr-defined]


def _patch_ddp(module: Any) -> None:
    import torch

    ddp = module.DistributedDataParallel
    make, before, register = ddp.__init__, ddp._pre_forward, ddp.register_comm_hook
    _early.note(early_end.LOADED)

    @between(make)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        # Imported now, and not in the first step, for which the recorder waits: the script may yet open its own.
        watched = _watched()
        given: Sequence[Any] = arguments
        named: Mapping[str, Any] = options
        if watched is not None and watched.cures is not None:
            (_, *given), named = watched.cures.arguments(make, (self, *arguments), options)
        looks = _state.set_up if _state.set_up is not None and _state.set_up.is_here else None
        with contained:
            if looks is not None:
                looks.makes_module()
            marks.note("construction_begin_ns")
        make(self, *given, **named)
        with contained:
            marks.note("construction_end_ns")
            if looks is not None:
                looks.begin()
            if watched is not None:
                watched.made_module(self)
            _early.made()

    # A copy of the compiler's own would be traced; the calls below are made before it begins.
    @between(ddp.__call__)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or torch.compiler._is_compiling_flag:
            return super(ddp, self).__call__(*arguments, **options)  # none of the rest is traced
        _forward(self, self)
        _state.announced = id(self)
        try:
            return super(ddp, self).__call__(*arguments, **options)
        except Exception as error:
            with contained:
                if _state.watched is not None:
                    _state.watched.raised(error)
            raise

    # By which it is found when it is pickled; a method of an instance is by the name of torch's.
    call.__module__, call.__qualname__ = ddp.__module__, f"{ddp.__qualname__}.__call__"

    @between(before)
    def pre_forward(self: Any, *arguments: Any, **options: Any) -> Any:
        # Of replicate(), which does not call the module itself.
        if not (torch.compiler.is_dynamo_compiling() or torch.compiler._is_compiling_flag):
            if _state.announced != id(self):
                _forward(self, self)
            _state.announced = 0
        return before(self, *arguments, **options)

    @between(register)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        # What DDP refuses is the script's hook, and not one of ours around it.
        self._check_comm_hook(hook)
        given = hook
        with contained:
            given = hook if (watched := _watched()) is None else watched.timed(hook)
        register(self, state, given)

    ddp.__init__ = init
    ddp.__call__ = call
    ddp._pre_forward = pre_forward
    ddp.register_comm_hook = register_comm_hook


def _patch_groups(module: Any) -> None:
    make = module.init_process_group

    @between(make)
    def init_process_group(*arguments: Any, **options: Any) -> Any:
        # torch is not complete when this module is loaded; now it is.
        if asked.is_launched() and (cures := _cures()) is not None:
            cures.before_group()
        begun, size = None, -1
        with contained:
            begun, size = _notes_begin(arguments, options), given_rank(arguments, options)[1]
            if begun is not None:
                begun.joins()
            marks.note("rendezvous_begin_ns")
        with _early.joins(size):
            made = make(*arguments, **options)
        with contained:
            marks.note("rendezvous_end_ns")
            _early.note(early_end.JOINED, backend=module.get_backend())
            if begun is not None:
                begun.begin()
        return made

    module.init_process_group = init_process_group
    # Where torch is loaded already, its package has a name of its own for it.
    package = sys.modules.get("torch.distributed")
    if package is not None:
        package.init_process_group = init_process_group  # type: ignore[attr-defined]


def _set_up_begins() -> SetUp | None:
    """What looks at the script until its first module runs; None: nothing does."""
    if _state.begun or _state.failed or not asked.lines():
        return None
    # A forked process has no thread of its parent's.
    if _state.set_up is None or not _state.set_up.is_here:
        from pyddpdiag.record.set_up import SetUp

        _state.set_up = SetUp()
    return _state.set_up


def _notes_begin(arguments: Sequence[Any], options: Mapping[str, Any]) -> SetUp | None:
    """The same, and says from now on where the rank is; the arguments are those of `init_process_group`."""
    if (begun := _set_up_begins()) is not None:
        notes(begun, asked.folder(), *given_rank(arguments, options))
    return begun


def _fails(error: str) -> None:
    if not _state.begun and (looks := _state.set_up) is not None and looks.is_here:
        looks.fails(error)


def _patch_compiled(module: Any) -> None:
    import torch

    compiled = module.OptimizedModule
    call = compiled.__call__

    @between(call)
    def compiled_call(self: Any, *arguments: Any, **options: Any) -> Any:
        kind, inner = getattr(sys.modules.get(_DDP), "DistributedDataParallel", ()), self._orig_mod
        if isinstance(inner, kind) and not torch.compiler.is_compiling():
            _forward(inner, self)
        return call(self, *arguments, **options)

    compiled.__call__ = compiled_call


def _patch_loader(module: Any) -> None:
    iterator = module._BaseDataLoaderIter
    following, make = iterator.__next__, module.DataLoader._get_iterator
    construct = module.DataLoader.__init__

    @between(construct)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        given: Sequence[Any] = arguments
        named: Mapping[str, Any] = options
        cures = _cures() if asked.is_launched() else None
        if cures is not None:
            (_, *given), named = cures.loader_arguments(construct, (self, *arguments), options)
        construct(self, *given, **named)

    @between(following)
    def next_batch(self: Any) -> Any:
        watched = _state.watched if _state.begun else None
        session = None
        try:
            if watched is not None and (session := watched.loop()) is not None:
                watched.waits.begins(session, self)
        except BaseException as error:
            if not contained.holds(error):
                raise
        if watched is None or session is None:
            return following(self)
        try:
            batch = following(self)
        except BaseException as error:
            with contained:
                watched.waits.took_none(session, self, error)
            raise
        try:
            watched.waits.took(session, self, batch)
        except BaseException as error:
            if not contained.holds(error):
                raise
        return batch

    @between(make)
    def get_iterator(self: Any) -> Any:
        since = monotonic_ns()
        made = make(self)
        with contained:
            if _state.begun and _state.watched is not None:
                _state.watched.waits.made(made, since)
        return made

    iterator.__next__ = next_batch
    module.DataLoader.__init__ = init
    module.DataLoader._get_iterator = get_iterator


def _patch_saving(module: Any) -> None:
    save = module.save

    @between(save)
    def watched_save(*arguments: Any, **options: Any) -> Any:
        since = monotonic_ns()
        made = save(*arguments, **options)
        with contained:
            if _state.begun and _state.watched is not None:
                _state.watched.saved(arguments[1] if len(arguments) > 1 else options.get("f"), since)
        return made

    module.save = watched_save
    # Where torch is loaded already, it has a name of its own for it.
    package = sys.modules.get("torch")
    if getattr(package, "save", None) is save:
        package.save = watched_save  # type: ignore[union-attr]


def _patch_optimizers(module: Any) -> None:
    module.register_optimizer_step_post_hook(_stepped)


def _stepped(optimizer: Any, *_: Any) -> None:
    """An optimizer of any script has stepped: one that knows no DDP, perhaps."""
    if alone.called:
        alone.forget_called()
    watched = _state.watched
    if watched is not None and watched.hears_optimizers:
        watched.stepped(optimizer)
    elif not (_alone.over or _state.begun or _early.knows_modules):
        import torch

        if not torch.compiler.is_compiling():
            with contained:
                _early.note(early_end.STEPPED)
                _alone.stepped(optimizer)


def _trains_alone() -> None:
    watched = None if _state.begun or _early.knows_modules else _watched()
    if watched is not None:
        _begins()
        watched.trains_alone()


_PATCHES: Final[dict[str, Callable[[Any], None]]] = {
    "torch.distributed.distributed_c10d": _patch_groups,
    _DDP: _patch_ddp,
    "torch._dynamo.eval_frame": _patch_compiled,
    "torch.utils.data.dataloader": _patch_loader,
    "torch.serialization": _patch_saving,
    "torch.optim.optimizer": _patch_optimizers,
}


def _forward(ddp: Any, given: Any) -> None:
    try:
        if not _state.called:
            _early.note(early_end.CALLED)
            if _watched() is not None:
                _begins()
            _state.called = _state.begun
        if _state.watched is not None:
            _state.watched.forward(ddp, given)
    except BaseException as error:
        if not contained.holds(error):
            raise


def _begins() -> None:
    """The training begins, and the set-up is over."""
    if not _state.begun and _state.set_up is not None and _state.set_up.is_here:
        _state.set_up.close()
    _state.begun = True

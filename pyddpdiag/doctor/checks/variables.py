"""Variables that change how Gloo starts."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag import system
from pyddpdiag.doctor.check import Outcome, Situation, failed, passed, warned
from pyddpdiag.messages.shells import UnsetVariable
from pyddpdiag.output import clean

_FALSE = {"", "0", "false", "off", "no", "n", "f"}


def check(situation: Situation) -> Iterator[Outcome]:
    """GLOO_DEVICE_TRANSPORT and TORCH_GLOO_LAZY_INIT."""
    found = [*_transport(situation), *_lazy(situation)]
    yield from found or [passed("variables", "none that changes how Gloo starts")]


def _transport(situation: Situation) -> Iterator[Outcome]:
    text = situation.environ.get("GLOO_DEVICE_TRANSPORT", "")
    # What the wheels have; TCP_TLS takes an OpenSSL build and certificates.
    usable = {"UV"} if system.WINDOWS else {"TCP"}
    if text and text.upper() not in usable:
        yield failed(
            "transport",
            f"GLOO_DEVICE_TRANSPORT is '{clean(text, 40)}', which torch's wheels for this system do not have.",
            "Unset it: the default works.",
            UnsetVariable("GLOO_DEVICE_TRANSPORT"),
        )


def _lazy(situation: Situation) -> Iterator[Outcome]:
    text = situation.environ.get("TORCH_GLOO_LAZY_INIT", "")
    if text.lower() not in _FALSE:
        yield warned(
            "lazy init",
            "TORCH_GLOO_LAZY_INIT is set: where only some ranks have it, the others crash at the start.",
            "Set it on all ranks or on none.",
            UnsetVariable("TORCH_GLOO_LAZY_INIT"),
        )

"""The networks, by the one set of names that training and benchmarks have for them."""

from __future__ import annotations

import pytest
import torch

from pyddpdiag.bench.cases import MODELS
from pyddpdiag.errors import UsageError
from pyddpdiag.workloads import fixed, networks
from pyddpdiag.workloads.archs import ARCHS, TRAINED, arch_of
from pyddpdiag.workloads.fixed import fixed_batch
from pyddpdiag.workloads.networks import Transformer, resnet18, resnet50

SMALL = ("digits-cnn", "mlp_small", "resnet18", "transformer")


def test_every_name_can_be_built_and_measured() -> None:
    assert set(networks._BUILDERS) == set(fixed._MAKERS) == set(ARCHS) == set(MODELS)


def test_what_can_only_be_measured_is_not_trained() -> None:
    assert "mlp" not in TRAINED
    with pytest.raises(UsageError, match="measured by `pyddpdiag bench` only") as caught:
        arch_of("mlp")
    assert "digits-cnn" in caught.value.hint and "mlp" not in caught.value.hint


def test_training_and_benchmarks_have_the_same_residual_networks() -> None:
    assert networks._BUILDERS["resnet50"] is resnet50 and networks._BUILDERS["resnet18"] is resnet18


@pytest.mark.parametrize("name", SMALL)
def test_a_fixed_batch_is_the_same_on_every_rank_and_reaches_every_parameter(name: str) -> None:
    first, second = fixed_batch(name), fixed_batch(name)
    assert first.module.training and first.batch_size > 0
    loss = first.loss(first.module)
    assert torch.equal(loss, second.loss(second.module))
    loss.backward()
    for parameter in first.module.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


def test_a_missing_library_is_named() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="transformers"):
            fixed_batch("bert_small")
    else:
        assert fixed_batch("bert_small").batch_size == 2


def test_residual_networks_have_the_published_numbers_of_parameters() -> None:
    with torch.device("meta"):
        for build, count in ((resnet18, 11_689_512), (resnet50, 25_557_032)):
            assert sum(p.numel() for p in build(1000).parameters()) == count


def test_a_residual_network_scores_images_of_any_size() -> None:
    model = resnet18(3).eval()
    for side in (32, 50):
        assert model(torch.randn(2, 3, side, side)).shape == (2, 3)


def test_the_transformer_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    model = Transformer(11, 16, width=32, layers=2)
    text = torch.randint(11, (1, 16))
    changed = text.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 11
    with torch.no_grad():
        before, after = model(text), model(changed)
    assert before.shape == (1, 16, 11)
    assert torch.allclose(before[0, :9], after[0, :9], atol=1e-6)
    assert not torch.allclose(before[0, 9], after[0, 9])

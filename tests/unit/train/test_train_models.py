"""The networks."""

from __future__ import annotations

import torch

from pyddpdiag.train.resnet import resnet18, resnet50
from pyddpdiag.train.transformer import Transformer


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

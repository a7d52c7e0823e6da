"""A small transformer that predicts the next character."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_HEADS = 4


class Layer(nn.Module):
    """Attention to what came before, then a small network per place, each around a shorter way."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, places, width) to the same."""
        n, places, width = x.shape
        parts = self.mix(self.before_attention(x)).view(n, places, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, places, width))
        changed: Tensor = x + self.network(self.before_network(x))
        return changed


class Transformer(nn.Module):
    """Scores (n, places, alphabet) of the next character at each place; input (n, places) int64.

    No dropout: a run must not depend on how many random numbers a rank has drawn.
    """

    def __init__(self, alphabet: int, context: int, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(alphabet, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, alphabet)

    def forward(self, characters: Tensor) -> Tensor:
        """See the class."""
        places = torch.arange(characters.shape[1], device=characters.device)
        scores: Tensor = self.scores(
            self.norm(self.layers(self.characters(characters) + self.places(places)))
        )
        return scores

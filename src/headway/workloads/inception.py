"""What Inception networks are made of: chains of convolutions side by side, joined along the channels.

A chain is a list of convolutions (filters, size), each normalised and followed by a ReLU; a list in it is a fork: its
convolutions have the same input and are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.workloads import layers
from headway.workloads.base import ForwardPass

Convolution = tuple[int, layers.Size]
Chain = Sequence[Convolution | list[Convolution]]
EPSILON = 1e-3


class Inception:
    def __init__(self, run: ForwardPass, width: float) -> None:
        self._run = run
        self._width = width

    def convolution(
        self, name: str, x: Any, filters: int, size: layers.Size, stride: int = 1, padding: str = "SAME"
    ) -> Any:
        x = layers.conv_norm(
            self._run,
            name,
            x,
            layers.widened(filters, self._width),
            size=size,
            stride=stride,
            padding=padding,
            use_scale=False,
            epsilon=EPSILON,
        )
        return layers.relu(x)

    def chain(self, name: str, x: Any, chain: Chain, halves: bool = False) -> Any:
        """One convolution after the other; `halves`: the last one halves the image."""
        for number, each in enumerate(chain, 1):
            if isinstance(each, list):
                fork = [self.convolution(f"{name}_{number}{i}", x, *one) for i, one in zip("ab", each, strict=True)]
                x = layers.joined(self._run, fork)
            elif halves and number == len(chain):
                x = self.convolution(f"{name}_{number}", x, *each, stride=2, padding="VALID")
            else:
                x = self.convolution(f"{name}_{number}", x, *each)
        return x

    def mixed(self, name: str, x: Any, *chains: Chain, pooled: int = 0) -> Any:
        """Chains side by side; `pooled`: beside them the neighbourhood's mean, through that many filters."""
        with layers.layer(self._run, name):
            found = [self.chain(f"chain{number}", x, chain) for number, chain in enumerate(chains, 1)]
            if pooled:
                found.append(self.chain("pooled", layers.average_pool(self._run, x, 3, 1, "SAME"), [(pooled, 1)]))
            return layers.joined(self._run, found)

    def reduction(self, name: str, x: Any, *chains: Chain) -> Any:
        """Chains and a pooling side by side, each of which halves the image."""
        with layers.layer(self._run, name):
            found = [self.chain(f"chain{number}", x, chain, halves=True) for number, chain in enumerate(chains, 1)]
            return layers.joined(self._run, [*found, layers.max_pool(self._run, x, size=3, stride=2)])

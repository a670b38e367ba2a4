"""From samples to a network's inputs: one small protocol for texts and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from engine_build.datasets.dataset import Sample
from engine_build.datasets.feed import Feed, Shape


class Encoder(Protocol):
    """Makes feeds of samples."""

    inputs: tuple[str, ...]
    """Names of the network's inputs."""

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """One batch."""
        ...

    def feeds(self, samples: Sequence[Sample], batch: int) -> Iterator[Feed]:
        """Batches of samples in order."""
        ...

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Real values in exactly that shape, nothing of it padding: for benchmarks."""
        ...

    def length(self, sample: Sample) -> int:
        """What makes a sample dear; 0 where all cost the same."""
        ...


def by_length(encoder: Encoder, samples: Sequence[Sample]) -> list[int]:
    """Places of the samples, the shortest first: batches of them hold little padding."""
    return sorted(range(len(samples)), key=lambda index: encoder.length(samples[index]))

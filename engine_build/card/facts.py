"""What a card is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onboarding.lock import LockEntry
from onboarding.manifest import BenchmarkRecord, Manifest
from onboarding.source_spec import SourceSpec
from onboarding.values import runtime_library


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """One published engine.

    `networks` maps each network's name, float or int8, to the facts it was kept with.
    """

    entry: LockEntry
    source: SourceSpec
    environment: str
    """The environment it was built for; others of the same platform share it."""
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """The engine's manifest."""
        return self.entry.manifest

    @property
    def frontier(self) -> tuple[Mapping[str, Any], ...]:
        """What the sensitivity search measured, the smallest share of INT8 work first.

        Empty when none was run.
        """
        points: Sequence[Mapping[str, Any]] = self._quantized.get("frontier", ())
        return tuple(sorted(points, key=lambda point: float(point["share"])))

    @property
    def layers(self) -> tuple[Mapping[str, Any], ...]:
        """The weighted layers, in graph order, each with what became of it and why."""
        return tuple(self._quantized.get("layers", ()))

    @property
    def _quantized(self) -> Mapping[str, Any]:
        """The facts of the Q/DQ network that the manifest's record is of; none for others."""
        record = self.manifest.quantization
        if record is None or record.mode == "dynamic":
            return {}
        return self.networks.get(record.precision, {})

    @property
    def subject(self) -> tuple[str, str]:
        """Runtime and precision of the published engine, as the benchmark names them."""
        return runtime_library(self.manifest.runtime.name), self.manifest.precision

    @property
    def at_opt(self) -> BenchmarkRecord | None:
        """The published engine at the first profile's opt shape."""
        profile = self.manifest.optimization_profiles[0]
        sequence = None if profile.sequence is None else profile.sequence[1]
        mine = [
            item
            for item in self.manifest.benchmark
            if (item.runtime, item.precision) == self.subject
        ]
        exact = [
            record
            for record in mine
            if record.batch == profile.batch[1] and record.sequence in (sequence, None)
        ]
        found = [*exact, *mine]
        return found[0] if found else None

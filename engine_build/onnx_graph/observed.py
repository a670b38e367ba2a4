"""Shapes of a network's outputs, from what it gives: exporters leave fixed axes without a size."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.datasets.feed import Feed
from engine_build.ort import OrtNetwork
from onboarding.manifest import TensorRecord


def observed_outputs(
    records: Sequence[TensorRecord], network: OrtNetwork, feeds: Sequence[Feed]
) -> tuple[TensorRecord, ...]:
    """The records, each axis but the batch with its size where that is the same for every feed.

    The feeds differ in every size that may differ when the network is served.
    """
    names = [record.name for record in records]
    seen = [network.values(names, feed) for feed in feeds]
    return tuple(
        _record(record, [values[record.name].shape for values in seen]) for record in records
    )


def _record(record: TensorRecord, shapes: Sequence[tuple[int, ...]]) -> TensorRecord:
    sizes = [set(each) for each in zip(*shapes, strict=True)]
    shape = tuple(
        min(seen) if axis > 0 and len(seen) == 1 else -1 for axis, seen in enumerate(sizes)
    )
    return TensorRecord(name=record.name, datatype=record.datatype, shape=shape)

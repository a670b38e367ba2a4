"""Classes of samples: what their labels say, and what a network answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine_build.datasets.feed import Array
from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import Network


def class_count(network: Network) -> int | None:
    """Classes that a network's scores stand for; None when its output is no [batch, classes]."""
    if network.labels is not None:
        return len(network.labels)
    shapes = [record.shape for record in network.outputs]
    return shapes[0][1] if len(shapes) == 1 and len(shapes[0]) == 2 and shapes[0][1] > 1 else None


def class_numbers(labels: Sequence[str], network: Network, dataset: str) -> Array:
    """The place of each label's score in the output: by class name, or by number.

    Raises InputRefused for any other label.
    """
    names = (
        {} if network.labels is None else {name: index for index, name in enumerate(network.labels)}
    )
    count = class_count(network)
    if count is None:
        told = ", ".join(f"{record.name} {list(record.shape)}" for record in network.outputs)
        raise InputRefused(
            f"the network gives {told}, which are no scores of classes [batch, classes]; choose "
            "another metric."
        )
    known = names | {str(index): index for index in range(count) if str(index) not in names}
    unknown = sorted(set(labels) - set(known))
    if unknown:
        allowed = ", ".join(names) if names else f"0 to {count - 1}"
        raise InputRefused(
            f"dataset {dataset} has {len(unknown)} labels that are no class of the model, such as "
            f"{unknown[0]!r}; allowed: {allowed}."
        )
    numbers: Array = np.array([known[label] for label in labels], dtype=np.int64)
    return numbers

"""What a build's answers are compared with: reference, metrics and budgets of each output."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine_build.datasets.dataset import Array, Encoder, Sample, Samples
from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import OutputStandard, Standard
from engine_build.onnx_graph.network_store import Network, class_indices
from engine_build.ort import OrtNetwork
from onboarding.model_spec import AccuracySpec

CLASS_METRICS = ("agreement", "accuracy")


def standard_of(
    spec: AccuracySpec,
    network: Network,
    encoder: Encoder,
    samples: Samples,
    reference: Array,
    dataset: str,
) -> Standard:
    """Return the standard of a float network's answers [samples, values] to a dataset's samples.

    Raises InputRefused.
    """
    outputs, labels = output_standards(spec, network, encoder, samples.values), None
    refuse_missing_labels(spec, samples, dataset)
    for output in outputs:
        if output.metric == "accuracy" and samples.labels is not None:
            labels = class_indices(samples.labels, network, dataset, output.name)
    first = outputs[0]
    return Standard(
        reference=reference,
        metric=first.metric,
        budget=first.budget,
        labels=labels,
        outputs=outputs if len(outputs) > 1 else (),
        queries=_queries(samples),
        token_classes=network.outputs[0].shape[-1] if network.answers_tokens else None,
        independent=network.facts.get("activation") == "sigmoid" and network.labels is not None,
    )


def _queries(samples: Samples) -> Array | None:
    """Return the number of each pair's query; None for other samples."""
    queries = [sample[0] for sample in samples.values if isinstance(sample, tuple)]
    if not queries or len(queries) != len(samples):
        return None
    numbers: Array = np.unique(queries, return_inverse=True)[1]
    return numbers


def output_standards(
    spec: AccuracySpec, network: Network, encoder: Encoder, samples: Sequence[Sample]
) -> tuple[OutputStandard, ...]:
    """Return each output's metric and budget, in the order of a row. Raises InputRefused."""
    refuse_unknown_outputs(spec, network)
    sizes = [prod(record.shape[1:]) for record in network.outputs]
    if len(sizes) > 1 and any(-1 in record.shape[1:] for record in network.outputs):
        # A size that follows the sequence: the samples of a dataset of arrays all have one.
        values = OrtNetwork(network.path).values(network.output_names, encoder.feed(samples[:1]))
        sizes = [values[name].size for name in network.output_names]
    standards = []
    for record, size in zip(network.outputs, sizes, strict=True):
        own = spec.outputs.get(record.name)
        metric = spec.metric if own is None or own.metric is None else own.metric
        budget = spec.budget if own is None or own.budget is None else own.budget
        standards.append(OutputStandard(name=record.name, size=size, metric=metric, budget=budget))
    return tuple(standards)


def refuse_missing_labels(spec: AccuracySpec, samples: Samples, dataset: str) -> None:
    """Refuse metric accuracy for a dataset without labels. Raises InputRefused."""
    if "accuracy" in spec.metrics and samples.labels is None:
        raise InputRefused(
            f"dataset {dataset} has no labels, and metric accuracy needs them; add them."
        )


def refuse_unknown_outputs(spec: AccuracySpec, network: Network) -> None:
    """Refuse budgets of outputs that a network does not have. Raises InputRefused."""
    unknown = sorted(set(spec.outputs) - set(network.output_names))
    if unknown:
        raise InputRefused(
            f"accuracy.outputs names {unknown[0]!r}, which is no output of the network; allowed: "
            f"{', '.join(network.output_names)}."
        )

"""Captured inputs against the data, and a sample of captured answers against the source model."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.captures.bodies import Captured, Unreadable
from engine_build.captures.distributions import Distance, input_distances
from engine_build.captures.exchanges import Request, Rows, read_request, read_rows
from engine_build.datasets.dataset import Array, Encoder, Sample, Samples
from engine_build.errors import SourceFault
from engine_build.evaluation.accuracy import accuracy
from engine_build.evaluation.answers import rows_by_length
from engine_build.evaluation.standards import standard_of
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.request import ENOUGH_SAMPLES
from engine_build.sources.given_network import encoder_for
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import AccuracySpec, ModelSpec

MOST_INPUTS = 5_000
"""Samples whose properties are compared with the data's; their noise is below 0.01 by then."""
BATCH = 32
NO_CAPTURE = "a line of a capture file is no captured invocation"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What captured invocations show of one model; it holds nothing that a user sent or got."""

    requests: int
    """Captured requests that could be read."""
    rows: int
    """Their samples."""
    unread: dict[str, int]
    """Captured invocations that could not be, by reason."""
    distances: tuple[Distance, ...]
    accuracy: AccuracyRecord | None
    """Of the sample; None where nothing could be compared."""
    not_compared: dict[str, int]
    """Requests of the sample whose answer could not be compared, by reason."""
    broken: int
    """Answers of the sample with NaN or infinite values, which are left out of the accuracy."""

    @property
    def verdict(self) -> str:
        """Return pass, fail or not enough data, of the accuracy alone."""
        if self.broken:
            return "fail"
        return "not enough data" if self.accuracy is None else self.accuracy.verdict

    @property
    def drifted(self) -> tuple[Distance, ...]:
        """Return the inputs' properties that drifted; () of too few rows to say so."""
        enough = self.rows >= ENOUGH_SAMPLES
        return tuple(item for item in self.distances if enough and item.has_drifted)


def compare_captures(
    captured: Iterable[Captured | None],
    network: Network,
    model: ModelSpec,
    data: Sequence[Sample],
    *,
    sample: int,
    seed: int,
) -> Comparison:
    """Compare one model's captured invocations with `data` and the float network.

    `sample`: rows that are asked of the network again, chosen by `seed`, whole requests each.
    """
    requests, unread = _requests(captured, network, model)
    choice = random.Random(seed)
    choice.shuffle(requests)
    inputs = [item for request in requests for item in request.samples]
    own = [f"{_prompt(network)}{item}" if isinstance(item, str) else item for item in data]
    chosen, not_compared = _choose_answers(requests, network, model, sample)
    record, broken = _accuracy(chosen, network, model, not_compared)
    return Comparison(
        requests=len(requests),
        rows=len(inputs),
        unread=dict(unread),
        distances=input_distances(network, inputs[:MOST_INPUTS], own),
        accuracy=record,
        not_compared=dict(not_compared),
        broken=broken,
    )


def _requests(
    captured: Iterable[Captured | None], network: Network, model: ModelSpec
) -> tuple[list[Request], Counter[str]]:
    requests, unread = [], Counter[str]()
    for invocation in captured:
        if invocation is None:
            unread[NO_CAPTURE] += 1
            continue
        try:
            requests.append(read_request(invocation, network, model.task))
        except Unreadable as error:
            unread[str(error)] += 1
    return requests, unread


def _prompt(network: Network) -> str:
    return "" if network.prompts is None else network.prompts.prefix()


def _encoder(network: Network, model: ModelSpec) -> Encoder:
    """Captured texts have their prompt already."""
    lengths = [
        profile.sequence[2]
        for profile in model.engine.optimization_profiles
        if profile.sequence is not None
    ]
    return encoder_for(dataclasses.replace(network, prompts=None), max(lengths, default=None))


def _choose_answers(
    requests: Sequence[Request], network: Network, model: ModelSpec, sample: int
) -> tuple[list[tuple[Request, Rows]], Counter[str]]:
    """Return requests with their answers, until there are as many rows as the sample has."""
    encoder, count, width = _encoder(network, model), 0, None
    chosen: list[tuple[Request, Rows]] = []
    skipped = Counter[str]()
    for request in requests:
        if count >= sample:
            break
        try:
            rows = read_rows(request, network, model.task, encoder)
        except Unreadable as error:
            skipped[str(error)] += 1
            continue
        width = rows.values.shape[1] if width is None else width
        if rows.values.shape[1] != width:
            skipped["the answer has another size than the sample's first"] += 1
            continue
        chosen.append((request, rows))
        count += len(request.samples)
    return chosen, skipped


def _accuracy(
    chosen: Sequence[tuple[Request, Rows]],
    network: Network,
    model: ModelSpec,
    skipped: Counter[str],
) -> tuple[AccuracyRecord | None, int]:
    """Return the record of the finite answers, and how many are not."""
    if not chosen:
        return None, 0
    encoder = _encoder(network, model)
    samples = [item for request, _ in chosen for item in request.samples]
    rows = np.concatenate([answer.values for _, answer in chosen])
    of_scores = np.concatenate([np.full(len(item.values), item.of_scores) for _, item in chosen])
    reference = _reference(chosen, samples, network, encoder)
    if reference.shape != rows.shape:
        skipped["the answers have another size than the network's"] += len(chosen)
        return None, 0
    if network.facts.get("activation") == "softmax" and of_scores.any():
        totals = np.log(np.exp(reference - reference.max(axis=1, keepdims=True)).sum(axis=1))
        logs = reference - (reference.max(axis=1) + totals)[:, None]
        reference = np.where(of_scores[:, None], logs, reference)
    finite = np.isfinite(rows).all(axis=1)
    kept = Samples(values=tuple(item for item, is_kept in zip(samples, finite, strict=True)
                                if is_kept))  # fmt: skip
    broken = int((~finite).sum())
    if not kept.values:
        return None, broken
    spec = without_labels(model.accuracy)
    try:
        standard = standard_of(spec, network, encoder, kept, reference[finite], "of captures")
        return accuracy("captured answers", rows[finite], standard), broken
    except SourceFault:
        skipped["no sample has a part that the metric counts"] += len(chosen)
        return None, broken


def _reference(
    chosen: Sequence[tuple[Request, Rows]],
    samples: Sequence[Sample],
    network: Network,
    encoder: Encoder,
) -> Array:
    """Return the float network's rows; arrays of each request by themselves, as they were sent."""
    session = OrtNetwork(network.path)
    if network.tokenizer is not None:
        rows: Array = rows_by_length(session.rows, encoder, samples, BATCH).astype(np.float64)
        return rows
    parts = [session.rows(encoder.feed(request.samples)) for request, _ in chosen]
    if len({part.shape[1] for part in parts}) > 1:
        return np.empty((0, 0))
    together: Array = np.concatenate(parts).astype(np.float64)
    return together


def without_labels(spec: AccuracySpec) -> AccuracySpec:
    """Return a standard for samples without labels: agreement in the place of accuracy."""
    outputs = {
        name: own.model_copy(update={"metric": "agreement"}) if own.metric == "accuracy" else own
        for name, own in spec.outputs.items()
    }
    metric = "agreement" if spec.metric == "accuracy" else spec.metric
    return spec.model_copy(update={"metric": metric, "outputs": outputs})

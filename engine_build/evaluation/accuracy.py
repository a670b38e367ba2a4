"""An engine's accuracy against the source model: mean with its interval, worst, and a verdict.

pass             the lower end of every interval holds its budget, and so does the worst sample
fail             the upper end of an interval misses its budget, or the worst sample does
not enough data  a budget lies within its interval, or there are fewer than 100 samples

Two statistics have an interval and a budget: the mean score, and for vectors, where a budget asks
for it, the share of samples whose nearest other sample is the source model's too.

Each output of a network is scored by itself, by a metric and a budget of its own where the model
file gives one, and every budget must hold; the record is that of the output that is furthest from
its own. A requested precision is refused on anything but a
pass, with exit code 3; `auto` chooses an engine only on a pass. A float32 engine needs no pass,
only no fail: its network was compared with the source model when it was exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from engine_build.datasets.dataset import Array, Encoder, Sample, Samples
from engine_build.errors import BudgetMissed, InputRefused, SourceFault
from engine_build.evaluation.scores import (
    METRICS_WITH_WORST,
    Interval,
    agreements,
    cosines,
    hits,
    label_agreements,
    mean_interval,
    nearest,
    ordered_pairs,
    ratio_interval,
    relative_scores,
    token_hits,
)
from engine_build.onnx_graph.network_store import Network, class_indices
from engine_build.ort import OrtNetwork
from engine_build.request import ENOUGH_SAMPLES
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import AccuracySpec, BudgetSpec
from onboarding.values import Metric


class BudgetedStatistic(NamedTuple):
    """A statistic of all samples, its interval and its budget."""

    value: float
    interval: Interval
    budget: float


def budgeted_statistics(record: AccuracyRecord) -> tuple[BudgetedStatistic, ...]:
    """Return the mean and, where there is a budget for it, the share of same neighbours.

    An interval that was not recorded counts as one without width.
    """
    found = [(record.mean, record.mean_interval, record.budget_mean)]
    if record.nearest_neighbour_agreement is not None and record.budget_neighbours is not None:
        same, interval = record.nearest_neighbour_agreement, record.nearest_neighbour_interval
        found.append((same, interval, record.budget_neighbours))
    return tuple(
        BudgetedStatistic(value, (value, value) if interval is None else interval, budget)
        for value, interval, budget in found
    )


Verdict = Literal["pass", "fail", "not enough data"]
ORDER: tuple[Verdict, ...] = ("fail", "not enough data", "pass")
DIGITS = 6
"""Of every recorded number: the verdict follows from those, so that a reader can repeat it."""
METRICS: dict[Metric, Callable[[Array, Array], Array]] = {
    "cosine": cosines,
    "agreement": agreements,
    "relative_error": relative_scores,
}


class BrokenAnswers(BudgetMissed):
    """An engine answers NaN or Inf."""


@dataclass(frozen=True, kw_only=True)
class OutputStandard:
    """One output of several, and what it is judged by."""

    name: str
    size: int
    """Values of a row."""
    metric: Metric
    budget: BudgetSpec


@dataclass(frozen=True, kw_only=True)
class Standard:
    """The answers and the budget that an engine is compared with."""

    reference: Array
    """The source model's rows, all finite."""
    metric: Metric
    budget: BudgetSpec
    labels: Array | None = None
    """The right class of each sample; metric accuracy needs them."""
    outputs: tuple[OutputStandard, ...] = ()
    """In the order of a row; () for a single one, judged by metric and budget above."""
    queries: Array | None = None
    """The number of each sample's query; metric order needs them."""
    token_classes: int | None = None
    """Labels of each token, where a row holds the logits of a text's tokens."""
    independent: bool = False
    """Whether each label is chosen by itself, so that a text may have several or none."""


class Comparison(NamedTuple):
    """How the answers of one engine or network compare."""

    record: AccuracyRecord
    """Of several outputs that of the furthest from its budget."""
    outputs: tuple[AccuracyRecord, ...]
    """Of each of several outputs; () for a single one."""
    worst: int
    """The sample whose score is the lowest."""


def accuracy(subject: str, rows: Array, standard: Standard) -> AccuracyRecord:
    """Return the record of `compare`."""
    return compare(subject, rows, standard).record


def compare(subject: str, rows: Array, standard: Standard) -> Comparison:
    """Compare one engine or network; of several outputs each by itself.

    Raises BrokenAnswers for NaN and Inf, SourceFault for those of the source model and for rows of
    another shape.
    """
    if rows.shape != standard.reference.shape:
        raise SourceFault(
            f"{subject} answers with shape {list(rows.shape)}, the source model with "
            f"{list(standard.reference.shape)}; export the source again, or delete the work folder."
        )
    if (broken := _not_finite(standard.reference)) is not None:
        raise SourceFault(
            f"the source model gives {broken}; repair its weights, or the samples, before engines "
            "are compared with it."
        )
    if (broken := _not_finite(rows)) is not None:
        raise BrokenAnswers(
            f"{subject} gives {broken}: values beyond its precision's range are the usual cause; "
            "ask for precision bf16 or fp32, or keep the layers that overflow in fp32."
        )
    names = [f"{subject}, output {output.name}" for output in standard.outputs] or [subject]
    ends = np.cumsum([output.size for output in standard.outputs])[:-1]
    parts, owns = np.split(rows, ends, axis=1), _standards_by_output(standard)
    results = [_record(*triple) for triple in zip(names, parts, owns, strict=True)]
    # The worst verdict, then the largest shortfall.
    record, scores = min(
        results, key=lambda result: (ORDER.index(result[0].verdict), -shortfall(result[0]))
    )
    outputs = tuple(record for record, _ in results) if standard.outputs else ()
    return Comparison(record, outputs, int(scores.argmin()))


def verdict(record: AccuracyRecord) -> Verdict:
    """Return the verdict on a record's numbers, whatever verdict it has.

    Too few samples decide nothing.
    """
    statistics = budgeted_statistics(record)
    misses_worst = record.budget_worst is not None and record.worst < record.budget_worst
    if record.samples < ENOUGH_SAMPLES:
        return "not enough data"
    if misses_worst or any(item.interval[1] < item.budget for item in statistics):
        return "fail"
    holds = all(item.interval[0] >= item.budget for item in statistics)
    return "pass" if holds else "not enough data"


def shortfall(record: AccuracyRecord) -> float:
    """Return how far a result lies below its budget; negative within it."""
    lacks = [item.budget - item.value for item in budgeted_statistics(record)]
    if record.budget_worst is not None:
        lacks.append(record.budget_worst - record.worst)
    return max(lacks)


def refuse_useless_labels(standard: Standard, dataset: str) -> None:
    """Raise SourceFault when the source model has no accuracy of which a part could be kept."""
    labels = standard.labels
    for own in _standards_by_output(standard):
        if (
            labels is not None
            and own.metric == "accuracy"
            and not hits(own.reference, labels).any()
        ):
            raise SourceFault(
                f"the source model gets none of the {len(labels)} labels of {dataset} right, so no "
                "share of its accuracy can be kept; check that the labels are its classes, or use "
                "metric agreement."
            )


def _standards_by_output(standard: Standard) -> list[Standard]:
    """Return the standard of each output by itself."""
    if not standard.outputs:
        return [standard]
    ends = np.cumsum([output.size for output in standard.outputs])[:-1]
    references = np.split(standard.reference, ends, axis=1)
    return [
        replace(
            standard, reference=reference, metric=output.metric, budget=output.budget, outputs=()
        )
        for output, reference in zip(standard.outputs, references, strict=True)
    ]


def _record(subject: str, rows: Array, standard: Standard) -> tuple[AccuracyRecord, Array]:
    """Return the record of one output, and the samples' scores."""
    scores, exact_mean, interval = _score(rows, standard)
    mean, worst = round(exact_mean, DIGITS), round(float(scores.min()), DIGITS)
    budget, agreement, agreement_interval = standard.budget, None, None
    if standard.metric == "cosine" and len(rows) > 1:
        same: Array = (nearest(rows) == nearest(standard.reference)).astype(np.float64)
        agreement, agreement_interval = round(float(same.mean()), 4), mean_interval(same)
    record = AccuracyRecord(
        subject=subject,
        metric=standard.metric,
        mean=mean,
        mean_interval=_round_ends(interval),
        worst=worst,
        samples=len(rows),
        nearest_neighbour_agreement=agreement,
        nearest_neighbour_interval=agreement_interval and _round_ends(agreement_interval),
        budget_mean=budget.mean,
        budget_worst=budget.worst if standard.metric in METRICS_WITH_WORST else None,
        budget_neighbours=budget.neighbours if standard.metric == "cosine" else None,
        verdict="not enough data",
    )
    return record.model_copy(update={"verdict": verdict(record)}), scores


def _round_ends(interval: Interval) -> Interval:
    return round(interval[0], DIGITS), round(interval[1], DIGITS)


def _score(rows: Array, standard: Standard) -> tuple[Array, float, Interval]:
    """Return the scores of the samples, their mean and its interval."""
    # What each sample has right and what it has, where a metric counts parts of it.
    counts: tuple[Array, Array] | None = None
    if standard.metric == "order":
        assert standard.queries is not None
        counts = ordered_pairs(rows, standard.reference, standard.queries)
    elif standard.metric == "agreement" and standard.token_classes is not None:
        counts = token_hits(rows, standard.reference, standard.token_classes)
    if counts is not None:
        right, all_ = counts
        if not all_.any():
            raise SourceFault(
                f"no sample has a part that metric {standard.metric} counts: the source model "
                "scores all texts of a query alike, or no text has a token; give other samples."
            )
        scores = np.divide(right, all_, out=np.ones_like(right), where=all_ > 0)
        return scores, float(right.sum() / all_.sum()), ratio_interval(right, all_)
    if standard.metric == "agreement" and standard.independent:
        scores = label_agreements(rows, standard.reference)
        return scores, float(scores.mean()), mean_interval(scores)
    if standard.metric != "accuracy":
        scores = METRICS[standard.metric](rows, standard.reference)
        return scores, float(scores.mean()), mean_interval(scores)
    assert standard.labels is not None
    own, source = hits(rows, standard.labels), hits(standard.reference, standard.labels)
    # MLPerf's share of the source model's accuracy; only what the engine alone has wrong scores 0.
    lost: Array = np.where((source == 1) & (own == 0), 0.0, 1.0)
    return lost, float(own.mean() / source.mean()), ratio_interval(own, source)


def _not_finite(rows: Array) -> str | None:
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if not len(broken):
        return None
    first = int(broken[0]) + 1
    return f"NaN or Inf for {len(broken)} of {len(rows)} samples, the first being sample {first}"


METRIC_NAMES = {
    "cosine": "cosine",
    "agreement": "agreement with the source model",
    "accuracy": "share of the source model's accuracy",
    "order": "pairs in the source model's order",
    "relative_error": "score (1 less the relative error)",
}
MOST_SAMPLES = 100_000
"""An estimate above this is not worth its digits."""


def format_record(record: AccuracyRecord) -> str:
    """Return the record in one line."""
    return (
        f"{record.subject}: {format_scores(record)}; budget {format_budget(record)}: "
        f"{record.verdict}"
    )


def format_scores(record: AccuracyRecord) -> str:
    """Return the measured scores, such as "mean cosine 0.99816 … on 640 samples, …"."""
    ends = record.mean_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.5f} to {ends[1]:.5f})"
    worst = f" and worst {record.worst:.5f}" if record.metric in METRICS_WITH_WORST else ""
    name = METRIC_NAMES[record.metric]
    scores = f"mean {name} {record.mean:.5f}{interval}{worst} on {record.samples} samples"
    if record.nearest_neighbour_agreement is None:
        return scores
    ends = record.nearest_neighbour_interval
    interval = "" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})"
    return f"{scores}, same nearest neighbour {record.nearest_neighbour_agreement:.3f}{interval}"


def format_budget(record: AccuracyRecord) -> str:
    """Return the budget, such as "mean 0.99 and worst 0.97"."""
    parts = [f"mean {record.budget_mean:g}"]
    if record.budget_worst is not None:
        parts.append(f"worst {record.budget_worst:g}")
    if record.budget_neighbours is not None:
        parts.append(f"same nearest neighbour {record.budget_neighbours:g}")
    return " and ".join(parts)


def format_verdict(record: AccuracyRecord) -> str:
    """Return the verdict and, for one that is not clear, the reason."""
    budget = format_budget(record)
    if record.verdict != "not enough data":
        return f"{'within' if record.verdict == 'pass' else 'outside'} the budget of {budget}"
    if record.samples < ENOUGH_SAMPLES:
        return f"not enough data to judge it: fewer than {ENOUGH_SAMPLES} samples"
    return f"not enough data to judge it: the budget of {budget} lies within an interval"


def way_out(record: AccuracyRecord) -> str:
    """Return what the user may do about a verdict that is no pass."""
    if record.verdict == "fail":
        return "lower the budget, ask for another precision, or give better calibration samples"
    give = "give the accuracy dataset"
    if record.samples < ENOUGH_SAMPLES:
        return f"{give} {ENOUGH_SAMPLES} samples or more, or ask for precision fp32"
    needed = samples_needed(record)
    count = "more" if needed is None else f"about {needed:,}"
    narrower = f"{give} {count} samples so that the interval is narrower"
    return f"{narrower}, lower the budget, or ask for fp32"


def samples_needed(record: AccuracyRecord) -> int | None:
    """Return how many samples would decide, if the statistics stay where they are.

    Intervals narrow with the root of the samples.
    """
    needed = record.samples + 1
    for item in budgeted_statistics(record):
        low, high = item.interval
        if not low < item.budget <= high:
            continue
        distance = abs(item.value - item.budget)
        if distance == 0:
            return None
        width = item.value - low if item.value > item.budget else high - item.value
        needed = max(needed, round(record.samples * (width / distance) ** 2 * 1.1))
    return None if needed > MOST_SAMPLES else needed


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
    pairs = [sample for sample in samples.values if isinstance(sample, tuple)]
    queries: Array | None = None
    if pairs and len(pairs) == len(samples):
        queries = np.unique([query for query, _ in pairs], return_inverse=True)[1]
    first = outputs[0]
    return Standard(
        reference=reference,
        metric=first.metric,
        budget=first.budget,
        labels=labels,
        outputs=outputs if len(outputs) > 1 else (),
        queries=queries,
        token_classes=network.outputs[0].shape[-1] if network.answers_tokens else None,
        independent=network.facts.get("activation") == "sigmoid" and network.labels is not None,
    )


def output_standards(
    spec: AccuracySpec, network: Network, encoder: Encoder, samples: Sequence[Sample]
) -> tuple[OutputStandard, ...]:
    """Return each output's metric and budget, in the order of a row.

    Raises InputRefused for budgets of outputs that the network does not have.
    """
    unknown = sorted(set(spec.outputs) - set(network.output_names))
    if unknown:
        raise InputRefused(
            f"accuracy.outputs names {unknown[0]!r}, which is no output of the network; allowed: "
            f"{', '.join(network.output_names)}."
        )
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

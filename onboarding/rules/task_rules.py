"""Rules of tasks, metrics and servers."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.model_spec import AccuracySpec, BudgetSpec
from onboarding.rules.rule import ModelCase, rule, rules_of
from onboarding.values import TEXT_TASKS, Metric, Task

METRICS: dict[Task, tuple[Metric, ...]] = {
    "image-classification": ("agreement", "accuracy", "cosine", "relative_error"),
    "text-classification": ("agreement", "accuracy", "relative_error"),
    "text-embedding": ("cosine", "relative_error"),
    "text-ranking": ("order", "relative_error"),
    "token-classification": ("agreement", "relative_error"),
    "tensors": ("cosine", "agreement", "accuracy", "relative_error"),
    "ensemble": ("cosine", "agreement", "relative_error"),
}
UNBUILT: dict[Task, str] = {
    "text-generation": "write its model file by hand: docs/text-generation.md shows one",
}
"""Tasks that no engine of this version serves, each with the way out."""


@rule("task", "source")
def tensors_come_as_onnx(case: ModelCase) -> Iterator[Fault]:
    """The inputs and outputs of an arbitrary checkpoint are unknown."""
    if case.spec.task == "tensors" and case.spec.source.onnx is None:
        yield case.document.at_change(("task",), ("source",)).fault(
            "'task' tensors needs an ONNX file as its source",
            value=case.spec.task,
            allowed="source.onnx, with its sha256",
            way_out="export the checkpoint, or name the task that it was trained for",
        )


@rule("task", "accuracy")
def metric_fits_the_task(case: ModelCase) -> Iterator[Fault]:
    """A class needs scores of classes; an embedding has none."""
    allowed = METRICS.get(case.spec.task)
    for path, metric in _metrics(case.spec.accuracy):
        if allowed is not None and metric not in allowed:
            yield case.document.at_change(path, ("task",)).fault(
                f"'{'.'.join(path)}' does not fit task {case.spec.task}",
                value=metric,
                allowed=", ".join(allowed),
                way_out="choose one of them",
            )


@rule("accuracy")
def worst_score_is_at_most_the_mean(case: ModelCase) -> Iterator[Fault]:
    """A mean is never below the worst score, so such a mean would decide nothing."""
    for path, budget in _budgets(case.spec.accuracy):
        if budget.worst is not None and budget.worst > budget.mean:
            worst, mean = (*path, "worst"), (*path, "mean")
            yield case.document.at_change(worst, mean).fault(
                f"'{'.'.join(worst)}' is above '{'.'.join(mean)}'",
                value=f"{budget.worst:g}",
                allowed=f"at most {budget.mean:g}",
                way_out="lower worst, or raise mean",
            )


def _metrics(accuracy: AccuracySpec) -> Iterator[tuple[tuple[str, ...], Metric]]:
    """Yield every metric that the file names, with its path."""
    yield ("accuracy", "metric"), accuracy.metric
    for name, output in accuracy.outputs.items():
        if output.metric is not None:
            yield ("accuracy", "outputs", name, "metric"), output.metric


def _budgets(accuracy: AccuracySpec) -> Iterator[tuple[tuple[str, ...], BudgetSpec]]:
    """Yield every budget that the file names, with its path."""
    yield ("accuracy", "budget"), accuracy.budget
    for name, output in accuracy.outputs.items():
        if output.budget is not None:
            yield ("accuracy", "outputs", name, "budget"), output.budget


@rule("accuracy")
def neighbours_need_vectors(case: ModelCase) -> Iterator[Fault]:
    """Only vectors that are compared by their angle have neighbours."""
    accuracy = case.spec.accuracy
    if accuracy.budget.neighbours is not None and accuracy.metric != "cosine":
        paths = (("accuracy", "budget", "neighbours"), ("accuracy", "metric"))
        yield case.document.at_change(*paths).fault(
            f"'accuracy.budget.neighbours' has no meaning for metric {accuracy.metric}",
            value=f"{accuracy.budget.neighbours:g}",
            allowed="metric cosine",
            way_out="leave neighbours out, or choose the metric cosine",
        )


@rule("serving")
def cache_is_triton_only(case: ModelCase) -> Iterator[Fault]:
    """The Python server keeps no answers."""
    if case.spec.serving.response_cache and case.spec.serving.server == "python":
        yield case.document.at_change(("serving", "response_cache"), ("serving", "server")).fault(
            "'serving.response_cache' is Triton's, and 'serving.server' is python",
            allowed="response_cache: false, or server: triton",
            way_out="change one of the two",
        )


@rule("task", "serving")
def only_texts_are_too_long(case: ModelCase) -> Iterator[Fault]:
    """Tensors have shapes, which are refused whenever they do not fit; images are resized."""
    if case.spec.task not in TEXT_TASKS and not case.spec.serving.auto_truncate:
        yield case.document.at_change(("serving", "auto_truncate"), ("task",)).fault(
            f"'serving.auto_truncate' is about texts, and 'task' is {case.spec.task}, of which "
            "nothing is cut",
            value=False,
            allowed="no auto_truncate, or a task of texts",
            way_out="take the line out",
        )


RULES = rules_of(globals())

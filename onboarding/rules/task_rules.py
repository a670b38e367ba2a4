"""Rules of tasks and optimization profiles: ordered sizes within the limits of servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.model_spec import AccuracySpec, BudgetSpec
from onboarding.rules.rule import ModelCase, rule
from onboarding.values import IMAGES, TEXT_TASKS, Metric, Task

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


_MAXIMUM: KeyPath = ("serving", "dynamic_batching", "max_batch_size")
MOST_VALUES = 2**31 - 1
"""Of a tensor: TensorRT counts them in 32 bits in many layers (NVIDIA/TensorRT#3815)."""
_PREFERRED: KeyPath = ("serving", "dynamic_batching", "preferred_batch_sizes")


@rule("engine")
def sizes_are_ordered(case: ModelCase) -> Iterator[Fault]:
    """Sizes rise on each axis: min <= opt <= max."""
    for index, profile in enumerate(case.spec.engine.optimization_profiles):
        for axis, sizes in (("batch", profile.batch), ("sequence", profile.sequence)):
            if sizes is not None and list(sizes) != sorted(sizes):
                wrong = "min is above opt" if sizes[0] > sizes[1] else "opt is above max"
                yield case.document.at("engine", "optimization_profiles", index, axis).fault(
                    f"'engine.optimization_profiles[{index}].{axis}': {wrong}",
                    value=list(sizes),
                    allowed="min <= opt <= max",
                    way_out="write [min, opt, max] in rising order",
                )


@rule("task", "engine")
def text_has_a_sequence_axis(case: ModelCase) -> Iterator[Fault]:
    """Rows of text differ in length."""
    for index, profile in enumerate(case.spec.engine.optimization_profiles):
        if case.spec.task in TEXT_TASKS and profile.sequence is None:
            yield case.document.at("engine", "optimization_profiles", index).fault(
                f"'engine.optimization_profiles[{index}]' has no sequence axis, and task "
                f"{case.spec.task} needs one",
                way_out="add `sequence: [min, opt, max]`, in tokens",
            )


@rule("engine")
def profiles_fit_a_tensor(case: ModelCase) -> Iterator[Fault]:
    """TensorRT refuses larger tensors, on the GPU machine."""
    for index, profile in enumerate(case.spec.engine.optimization_profiles):
        sequence = 1 if profile.sequence is None else profile.sequence[2]
        if profile.batch[2] * sequence > MOST_VALUES:
            yield case.document.at("engine", "optimization_profiles", index, "batch").fault(
                f"'engine.optimization_profiles[{index}]' has inputs of {profile.batch[2]} x "
                f"{sequence} values",
                value=profile.batch[2],
                allowed=f"at most {MOST_VALUES} values in a tensor",
                way_out="lower the largest batch",
            )


@rule("task", "engine")
def images_have_one_size(case: ModelCase) -> Iterator[Fault]:
    """A processor gives every image the same height and width; only the batch differs."""
    for index, profile in enumerate(case.spec.engine.optimization_profiles):
        if case.spec.task == IMAGES and profile.sequence is not None:
            yield case.document.at("engine", "optimization_profiles", index, "sequence").fault(
                f"'engine.optimization_profiles[{index}].sequence' is of texts, and task "
                f"{case.spec.task} has images, which all get one size",
                value=list(profile.sequence),
                allowed="batch alone",
                way_out="take the line out",
            )


@rule("engine")
def profiles_take_every_batch(case: ModelCase) -> Iterator[Fault]:
    """Every batch size from 1 on needs a profile: servers never pad a batch."""
    profiles = case.spec.engine.optimization_profiles
    missing = _gaps((profile.batch[0], profile.batch[2]) for profile in profiles)
    if missing and all(list(profile.batch) == sorted(profile.batch) for profile in profiles):
        yield case.document.at("engine", "optimization_profiles").fault(
            "'engine.optimization_profiles': some batches fit no profile",
            value=_spans(missing),
            allowed=f"every batch from 1 to {_largest_batch(case)} in some profile",
            way_out="lower a profile's min, or raise another's max",
        )


@rule("engine", "serving")
def batches_fit_the_server(case: ModelCase) -> Iterator[Fault]:
    """A profile that no batch of the server fits is compiled for nothing.

    One whose largest batch alone is above the maximum is not: plans are compiled once, and served
    with several maxima.
    """
    maximum = case.spec.serving.dynamic_batching.max_batch_size
    for index, profile in enumerate(case.spec.engine.optimization_profiles):
        if maximum is not None and profile.batch[0] > maximum:
            path: KeyPath = ("engine", "optimization_profiles", index, "batch")
            yield case.document.at_change(path, _MAXIMUM).fault(
                f"'engine.optimization_profiles[{index}].batch' begins above the server's "
                "maximum batch",
                value=profile.batch[0],
                allowed=f"at most {maximum}, as serving.dynamic_batching.max_batch_size says",
                way_out="lower the one or raise the other",
            )


@rule("engine", "serving")
def server_maximum_fits_a_profile(case: ModelCase) -> Iterator[Fault]:
    """The server would form batches that no profile can run."""
    maximum = case.spec.serving.dynamic_batching.max_batch_size
    largest = _largest_batch(case)
    if maximum is not None and maximum > largest:
        yield case.document.at_change(_MAXIMUM, ("engine", "optimization_profiles")).fault(
            "'serving.dynamic_batching.max_batch_size' is above every optimization profile",
            value=maximum,
            allowed=f"at most {largest}",
            way_out="lower it, or raise a profile's largest batch",
        )


@rule("engine", "serving")
def preferred_batches_fit(case: ModelCase) -> Iterator[Fault]:
    """The server never forms a batch above its maximum."""
    batching = case.spec.serving.dynamic_batching
    maximum = _largest_batch(case) if batching.max_batch_size is None else batching.max_batch_size
    for index, size in enumerate(batching.preferred_batch_sizes):
        if size > maximum:
            yield case.document.at_change((*_PREFERRED, index), _MAXIMUM).fault(
                f"'serving.dynamic_batching.preferred_batch_sizes[{index}]' is above the "
                "server's maximum batch",
                value=size,
                allowed=f"at most {maximum}",
                way_out="lower it, or raise the maximum and a profile's largest batch",
            )


def _gaps(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last of each run of sizes, from 1 on, that no span (first, last) holds."""
    gaps: list[tuple[int, int]] = []
    next_size = 1
    for first, last in sorted(spans):
        if first > next_size:
            gaps.append((next_size, first - 1))
        next_size = max(next_size, last + 1)
    return gaps


def _spans(gaps: list[tuple[int, int]]) -> str:
    first, last, count = gaps[0][0], gaps[-1][1], sum(end - begin + 1 for begin, end in gaps)
    return f"{first} row" if count == 1 else f"{first} to {last} rows, {count} sizes in all"


def _largest_batch(case: ModelCase) -> int:
    return max(profile.batch[2] for profile in case.spec.engine.optimization_profiles)

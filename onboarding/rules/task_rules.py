"""Rules of tasks, accuracy and optimization profiles: ordered sizes within servers' limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onboarding.dataset import Datasets
from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.model_spec import BudgetSpec, ModelSpec
from onboarding.validation import Checked
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
_MAXIMUM = "serving.dynamic_batching.max_batch_size"


def metrics_fit_the_task(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A class needs scores of classes; an embedding has none."""
    accuracy, allowed = model.spec.accuracy, METRICS.get(model.spec.task, ())
    metrics: dict[KeyPath, Metric | None] = {("accuracy", "metric"): accuracy.metric}
    for name, output in accuracy.outputs.items():
        metrics["accuracy", "outputs", name, "metric"] = output.metric
    for path, metric in metrics.items():
        if allowed and metric is not None and metric not in allowed:
            yield model.fault(
                path,
                f"does not fit task {model.spec.task}",
                allowed=", ".join(allowed),
                way_out="choose one of them",
                beside=["task"],
            )


def budgets_decide_something(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A mean is never below the worst score; vectors compared by their angle have neighbours."""
    accuracy = model.spec.accuracy
    budgets: dict[tuple[str, ...], BudgetSpec] = {("accuracy", "budget"): accuracy.budget}
    for name, output in accuracy.outputs.items():
        if output.budget is not None:
            budgets["accuracy", "outputs", name, "budget"] = output.budget
    for path, budget in budgets.items():
        if budget.worst is not None and budget.worst > budget.mean:
            yield model.fault(
                (*path, "worst"),
                f"is above '{'.'.join(path)}.mean'",
                allowed=f"at most {budget.mean:g}",
                way_out="lower worst, or raise mean",
                beside=[(*path, "mean")],
            )
    if accuracy.budget.neighbours is not None and accuracy.metric != "cosine":
        yield model.fault(
            "accuracy.budget.neighbours",
            f"has no meaning for metric {accuracy.metric}",
            allowed="metric cosine",
            way_out="leave neighbours out, or choose the metric cosine",
            beside=["accuracy.metric"],
        )


def cache_is_triton_only(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """The Python server keeps no answers."""
    if model.spec.serving.response_cache and model.spec.serving.server == "python":
        yield model.at("serving.response_cache", "serving.server").fault(
            "'serving.response_cache' is Triton's, and 'serving.server' is python",
            allowed="response_cache: false, or server: triton",
            way_out="change one of the two",
        )


def profiles_have_ordered_sizes(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Sizes rise on each axis, and every batch from 1 on has a profile: servers never pad one."""
    profiles = model.spec.engine.optimization_profiles
    for index, profile in enumerate(profiles):
        for axis, sizes in (("batch", profile.batch), ("sequence", profile.sequence)):
            if sizes is not None and list(sizes) != sorted(sizes):
                path = f"engine.optimization_profiles[{index}].{axis}"
                wrong = "min is above opt" if sizes[0] > sizes[1] else "opt is above max"
                yield model.at(path).fault(
                    f"'{path}': {wrong}",
                    value=list(sizes),
                    allowed="min <= opt <= max",
                    way_out="write [min, opt, max] in rising order",
                )
    missing = _gaps((profile.batch[0], profile.batch[2]) for profile in profiles)
    if missing and all(list(profile.batch) == sorted(profile.batch) for profile in profiles):
        yield model.at("engine.optimization_profiles").fault(
            "'engine.optimization_profiles': some batches fit no profile",
            value=_spans(missing),
            allowed=f"every batch from 1 to {_largest_batch(model)} in some profile",
            way_out="lower a profile's min, or raise another's max",
        )


def profiles_have_the_tasks_axes(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Rows of text differ in length; a processor gives every image one height and width."""
    task = model.spec.task
    for index, profile in enumerate(model.spec.engine.optimization_profiles):
        path = f"engine.optimization_profiles[{index}]"
        if task in TEXT_TASKS and profile.sequence is None:
            yield model.fault(
                path,
                f"has no sequence axis, and task {task} needs one",
                way_out="add `sequence: [min, opt, max]`, in tokens",
            )
        elif task == IMAGES and profile.sequence is not None:
            yield model.fault(
                f"{path}.sequence",
                f"is of texts, and task {task} has images, which all get one size",
                allowed="batch alone",
                way_out="take the line out",
            )


def server_batches_fit_the_profiles(
    model: Checked[ModelSpec], datasets: Datasets
) -> Iterator[Fault]:
    """The server would form batches that no profile can run, or wait for ones above its maximum."""
    batching, largest = model.spec.serving.dynamic_batching, _largest_batch(model)
    maximum = largest if batching.max_batch_size is None else batching.max_batch_size
    if maximum > largest:
        yield model.fault(
            _MAXIMUM,
            "is above every optimization profile",
            allowed=f"at most {largest}",
            way_out="lower it, or raise a profile's largest batch",
            beside=["engine.optimization_profiles"],
        )
    for index, size in enumerate(batching.preferred_batch_sizes):
        if size > maximum:
            yield model.fault(
                f"serving.dynamic_batching.preferred_batch_sizes[{index}]",
                "is above the server's maximum batch",
                allowed=f"at most {maximum}",
                way_out="lower it, or raise the maximum and a profile's largest batch",
                beside=[_MAXIMUM],
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


def _largest_batch(model: Checked[ModelSpec]) -> int:
    return max(profile.batch[2] for profile in model.spec.engine.optimization_profiles)


ACCURACY_RULES = (metrics_fit_the_task, budgets_decide_something, cache_is_triton_only)
"""Of ensembles too."""
RULES = (
    profiles_have_ordered_sizes,
    profiles_have_the_tasks_axes,
    server_batches_fit_the_profiles,
)

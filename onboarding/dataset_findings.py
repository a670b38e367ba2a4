"""Notes on calibration: sets narrower than the validation texts, caches for text models."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.coverage import coverage_gaps
from onboarding.dataset import Datasets
from onboarding.model_spec import ModelSpec
from onboarding.tree import Tree
from onboarding.values import TEXT_TASKS


def dataset_notes(tree: Tree) -> tuple[str, ...]:
    """Return a note for every narrow set of texts; arrays and unusable files have none."""
    datasets = Datasets(tree.root)
    notes = (note for spec in tree.models.values() for note in _notes(spec, datasets))
    return tuple(dict.fromkeys(notes))


def implicit_int8_notes(tree: Tree) -> tuple[str, ...]:
    """Return a note for every text model whose INT8 is left to TensorRT by a calibration cache."""
    return tuple(
        f"models/{name}.yaml: quantization calibration-cache gives no INT8 to attention, which "
        "TensorRT computes in INT8 by Q/DQ nodes alone: the build refuses int8 for such a network, "
        "and leaves it out under auto; choose `quantization: explicit`."
        for name, spec in tree.models.items()
        if isinstance(spec, ModelSpec)
        and spec.engine.quantization == "calibration-cache"
        and spec.engine.precision in ("int8", "auto")
        and spec.task in TEXT_TASKS
    )


def _notes(spec: ModelSpec, datasets: Datasets) -> Iterator[str]:
    validation = spec.accuracy.dataset
    for option, purpose in (
        (spec.engine.calibration, "takes its ranges from"),
        (spec.engine.sensitivity_search, "chooses its layers on"),
    ):
        if option is None:
            continue
        texts = datasets[option.dataset].texts[: option.samples]
        gaps = coverage_gaps(texts, datasets[validation].texts)
        if gaps:
            yield (
                f"{option.dataset}, first {len(texts)} lines, is narrower than {validation}: "
                f"{'; '.join(gaps)}. INT8 {purpose} the former alone; add such lines to its start."
            )

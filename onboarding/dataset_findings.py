"""Notes on models: calibration caches of text models, profiles that no text fits."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.dataset import Datasets
from onboarding.model_spec import ModelSpec
from onboarding.tree import Tree
from onboarding.values import TEXT_TASKS

SPECIAL_TOKENS = 2
"""Those that most tokenizers put around a text."""
WASTEFUL = 2
"""A profile this many times the longest text pays for padding; less is room for longer ones."""


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


def profile_notes(tree: Tree) -> tuple[str, ...]:
    """Return a note for every text model whose longest profile the validation texts do not fit.

    A tokenizer makes at least a token of a word and at most one of a UTF-8 byte, so what these
    notes say holds for each; prompts and special tokens come on top.
    """
    datasets = Datasets(tree.root)
    models = sorted(tree.models.items())
    return tuple(note for name, spec in models for note in _profile_notes(name, spec, datasets))


def _profile_notes(name: str, spec: ModelSpec, datasets: Datasets) -> Iterator[str]:
    profiles = spec.engine.optimization_profiles
    longest = max((item.sequence[2] for item in profiles if item.sequence is not None), default=0)
    texts = datasets[spec.accuracy.dataset].texts
    if not longest or not texts or spec.task not in TEXT_TASKS:
        return
    fewest = [len(text.split()) for text in texts]
    cut = sum(count > longest - SPECIAL_TOKENS for count in fewest)
    most = max(len(text.encode()) for text in texts) + SPECIAL_TOKENS
    where = f"models/{name}.yaml: the longest optimization profile has {longest} tokens, and"
    if cut:
        yield (
            f"{where} {cut} of {len(texts)} texts of {spec.accuracy.dataset} have more (one has "
            f"{max(fewest)} words), so they are cut; raise the profile's sequence, up to what the "
            "model takes."
        )
    elif longest >= WASTEFUL * most:
        yield (
            f"{where} no text of {spec.accuracy.dataset} can have more than {most}, so its memory, "
            "and on a GPU the padding of longer batches, is paid for without use; lower the "
            "profile's sequence unless users send longer texts."
        )

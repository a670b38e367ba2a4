"""What a model is sent: texts or arrays, and the refusal of inputs of another kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onboarding.deployment import Target
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.repository_spec import RepositorySpec
from roundhouse.errors import UsageError


def require_inputs(
    target: Target, texts: Sequence[str], file: Path | None, query: str | None = None
) -> None:
    """Raise UsageError for inputs of the wrong kind, none, or texts without words."""
    name = target.model.name
    own = own_tensors(target)
    if own is not None:
        if texts or file is None:
            is_ensemble = isinstance(target.model, EnsembleSpec)
            kind = "is an ensemble" if is_ensemble else "has code of its own around the model"
            raise UsageError(
                f"{name}: {kind}, so it {own}; give --input FILE.npz "
                "(an array per input, rows on axis 0; texts as numpy's str) and no texts."
            )
        return
    ranks = target.model.task == "text-ranking"
    if ranks and (query is None or not query.strip()):
        raise UsageError(f"{name}: ranks texts for a query; give --query with words.")
    if query is not None and not ranks:
        raise UsageError(f"{name}: is of task {target.model.task}; only a ranker takes --query.")
    if target.model.task == "tensors":
        if texts or file is None:
            raise UsageError(
                f"{name}: takes arrays; give --input FILE.npz (an array per input, rows on axis 0) "
                "and no texts."
            )
    elif file is not None or not texts:
        raise UsageError(f"{name}: takes texts; give them as arguments or by --input FILE.txt.")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise UsageError(f"{name}: text {number} is empty; give words, or leave it out.")


def own_tensors(target: Target) -> str | None:
    """Return what clients send and get where a model file declares it; None where the task does."""
    if isinstance(target.model, EnsembleSpec | RepositorySpec):
        if target.lock_entry is None:
            return "takes and answers tensors"
        inputs, outputs = target.lock_entry.manifest.inputs, target.lock_entry.manifest.outputs
        sent, got = (", ".join(tensor.name for tensor in tensors) for tensors in (inputs, outputs))
        return f"takes {sent} and answers {got}"
    before, after = target.model.serving.preprocessing, target.model.serving.postprocessing
    parts = {
        "takes": () if before is None else before.inputs,
        "answers": () if after is None else after.outputs,
    }
    words = [
        f"{verb} {', '.join(tensor.name for tensor in tensors)}"
        for verb, tensors in parts.items()
        if tensors
    ]
    return " and ".join(words) or None

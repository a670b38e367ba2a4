"""The head of a checkpoint or of an ONNX file: its labels, and what makes scores of its logits.

Sources: transformers' pipelines (text_classification.py, token_classification.py,
image_classification.py) for classifiers;
sentence_transformers' CrossEncoder for rankers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from container.triton.heads import apply_activation
from engine_build.datasets.dataset import Array, Sample
from engine_build.errors import SourceFault
from engine_build.sources.checkpoint import (
    TOLERANCE,
    are_alike,
    class_names,
    load_reference_model,
    read_json,
)
from onboarding.values import Activation, Task

HEADED: tuple[Task, ...] = (
    "image-classification",
    "text-classification",
    "text-ranking",
    "token-classification",
)
"""Tasks whose networks answer logits."""
PROBLEMS: dict[str | None, Activation] = {
    None: "softmax",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "identity",
}
FUNCTIONS: dict[str, Activation] = {"Identity": "identity", "Sigmoid": "sigmoid"}
"""Activation functions of rankers, by the last word of their Python path."""
CLASSIFIER_WEIGHTS = ("classifier.weight", "classifier.out_proj.weight", "score.weight")
"""The last layer's weights in transformers' models, [labels, width]."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Labels in the order of the logits, None for a ranker, and the activation of their scores."""

    labels: tuple[str, ...] | None
    activation: Activation


def head_of(folder: Path, task: Task, *, scores: int | None = None) -> Head | None:
    """Return the head that the files of a folder describe; None for a task without one.

    `scores` is the number of logits, where it is known. Raises SourceFault.
    """
    if task not in HEADED:
        return None
    config = read_json(folder / "config.json", {})
    if task == "text-ranking":
        if scores not in (None, 1):
            raise SourceFault(
                f"the network gives {scores} scores for a pair, of which no order follows; "
                "text-ranking takes one: name a ranker, or serve it as task tensors."
            )
        return Head(labels=None, activation=_ranking_activation(folder, config))
    labels = class_names(config)
    if labels is None:
        labels = tuple(f"LABEL_{index}" for index in range(2 if scores is None else scores))
    if scores is not None and scores != len(labels):
        raise SourceFault(
            f"the network gives {scores} scores, but config.json names {len(labels)} classes; "
            "they are not a pair: correct id2label."
        )
    if task == "token-classification":
        return Head(labels=labels, activation="softmax")
    return Head(labels=labels, activation=_problem_activation(config, len(labels)))


def refuse_other_head(folder: Path, config: dict[str, Any], task: Task) -> None:
    """Refuse labels that disagree with the last layer's weights. Raises SourceFault.

    transformers would only say that sizes differ.
    """
    if task not in HEADED:
        return
    named = class_names(config)
    # transformers' default.
    count = 2 if named is None else len(named)
    stated = config.get("num_labels")
    if stated is not None and named is not None and stated != count:
        raise SourceFault(
            f"config.json of the checkpoint has num_labels {stated}, but id2label names {count} "
            "classes; correct one of the two."
        )
    for name, rows in _classifier_rows(folder):
        if rows != count:
            says = "names no classes, which means 2" if named is None else f"names {count} classes"
            raise SourceFault(
                f"{name} of the checkpoint gives {rows} scores, but config.json {says}; they are "
                "not a pair: correct id2label."
            )


def ranking_reference(folder: Path, longest: int) -> Callable[[Sequence[Sample]], Array]:
    """Return the logits of CrossEncoder's own `predict()`: float32 [pairs, 1].

    In float32 on the CPU, cut at `longest` tokens as the engine does. The first call also compares
    its scores with those of our activation. Raises SourceFault.
    """
    import torch

    model = load_reference_model("CrossEncoder", folder, longest)
    head = head_of(folder, "text-ranking")
    assert head is not None

    identity, was_compared = torch.nn.Identity(), False

    def predict(pairs: Sequence[Sample]) -> Array:
        nonlocal was_compared
        given = list(map(list, pairs))
        logits = model.predict(given, activation_fn=identity, show_progress_bar=False)
        rows: Array = np.asarray(logits, np.float32).reshape(len(given), -1)
        if not was_compared:
            scores = np.asarray(model.predict(given, show_progress_bar=False))
            _refuse_other_activation(rows, scores, head.activation)
            was_compared = True
        return rows

    return predict


def _refuse_other_activation(logits: Array, scores: Array, activation: Activation) -> None:
    own = apply_activation(logits, activation)
    if not np.allclose(own.reshape(-1), scores.reshape(-1), atol=TOLERANCE):
        raise SourceFault(
            f"predict() of the checkpoint gives other scores than {activation} of its logits; "
            "allowed: Identity and Sigmoid as its activation function."
        )


def refuse_other_scores(built: Array, reference: Array) -> None:
    """Refuse a network whose logits are not those of `predict()`. Raises SourceFault."""
    if are_alike(built, reference):
        return
    raise SourceFault(
        "the network's scores differ from those of sentence-transformers' predict() (by "
        f"{np.abs(built[:, :1] - reference[:, :1]).max():.2g}); the checkpoint names a prompt, a "
        "module or a tokenizer class that tokenizer.json does not hold: save it without that, or "
        "export it to ONNX yourself and name the file as `source.onnx`."
    )


def _problem_activation(config: dict[str, Any], count: int) -> Activation:
    """Return what transformers' pipeline applies: one score without a problem type is a share."""
    problem = config.get("problem_type")
    if problem not in PROBLEMS:
        named = ", ".join(name for name in PROBLEMS if name is not None)
        raise SourceFault(
            f"config.json of the source has problem_type {problem!r}; allowed: {named}, or none."
        )
    if problem == "regression":
        return "identity"
    return "sigmoid" if count == 1 else PROBLEMS[problem]


def _ranking_activation(folder: Path, config: dict[str, Any]) -> Activation:
    """Return the activation that CrossEncoder takes: its own file's, config.json's, or Sigmoid."""
    own = read_json(folder / "config_sentence_transformers.json", {})
    nested = config.get("sentence_transformers")
    inside = nested if isinstance(nested, dict) else {}
    for value in (
        own.get("activation_fn"),
        inside.get("activation_fn"),
        config.get("sbert_ce_default_activation_function"),
    ):
        if value is not None:
            function = str(value).rpartition(".")[2]
            if function not in FUNCTIONS:
                raise SourceFault(
                    f"the checkpoint's activation function is {value}; allowed: "
                    f"{', '.join(FUNCTIONS)} of torch.nn. Save it with one of them."
                )
            return FUNCTIONS[function]
    return "sigmoid"


def _classifier_rows(folder: Path) -> list[tuple[str, int]]:
    """Return each last layer's name and rows, as the headers of the weight files tell them."""
    rows = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "numpy") as file:
                rows += [
                    (name, int(file.get_slice(name).get_shape()[0]))
                    for name in file.keys()  # noqa: SIM118
                    if name.removeprefix("model.") in CLASSIFIER_WEIGHTS
                ]
        except Exception:
            # Loading says what is wrong with the file.
            return []
    return rows

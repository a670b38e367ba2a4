"""Tiny checkpoints with heads, their exports, and what their own libraries answer.

`python -m tests.contract.head_models FOLDER`, in the builder's environment: for each model a
folder with `model.onnx`, `tokenizer.json` and `facts.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import CrossEncoder

from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from onboarding.values import Task
from tests.unit.engine_build.architectures import write_pair_template, write_text_checkpoint
from tests.unit.engine_build.tiny import WORDS, sample_texts

LONGEST = 16
COUNT = 200
ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LABELS = ("calm", "glad", "sad")
ODD = ["ünïcode 火車 a cat", "A CAT, a dog!", "  two   spaces ", " ".join(WORDS), "x" * 400]
"""Other scripts, punctuation, blanks, and more than the longest sequence."""


def texts(seed: int, count: int = COUNT) -> list[str]:
    """Return as many texts, odd ones among them."""
    return [*ODD, *sample_texts(count - len(ODD), seed=seed)]


def pairs() -> list[list[str]]:
    """Return a query and a text a row, with odd ones on both sides."""
    queries = [*ODD, *sample_texts(COUNT // 5 - len(ODD), seed=21)]
    return [[queries[place % len(queries)], text] for place, text in enumerate(texts(22))]


def classifier_answers(folder: Path) -> list[Any]:
    """Return the pipeline's labels and scores, the highest first."""
    pipe = transformers.pipeline("text-classification", str(folder), device="cpu", top_k=None)
    rows = pipe(texts(20), truncation=True, max_length=LONGEST, batch_size=20)
    return [[[item["label"], item["score"]] for item in row] for row in rows]


def ranker_answers(folder: Path) -> list[Any]:
    """Return the scores of CrossEncoder's predict()."""
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = LONGEST
    scores: list[Any] = model.predict(pairs(), show_progress_bar=False).tolist()
    return scores


def token_answers(folder: Path) -> list[Any]:
    """Return the pipeline's entities without an aggregation, and with the simple one."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), model_max_length=LONGEST)
    pipe = transformers.pipeline(
        "token-classification", str(folder), tokenizer=tokenizer, device="cpu"
    )

    def answers(strategy: str, name: str) -> list[Any]:
        rows = pipe(texts(20), aggregation_strategy=strategy, batch_size=20)
        return [
            [[item[name], float(item["score"]), item["start"], item["end"]] for item in row]
            for row in rows
        ]

    pairs_of_answers = zip(
        answers("none", "entity"), answers("simple", "entity_group"), strict=True
    )
    return list(map(list, pairs_of_answers))


Answers = Callable[[Path], list[Any]]
IDENTITY = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
MODELS: dict[str, tuple[Task, Sequence[str], dict[str, Any], Answers]] = {
    "single": ("text-classification", LABELS, {}, classifier_answers),
    "multi": (
        "text-classification",
        LABELS,
        {"problem_type": "multi_label_classification"},
        classifier_answers,
    ),
    "regression": (
        "text-classification",
        ("stars",),
        {"problem_type": "regression"},
        classifier_answers,
    ),
    "ranker": ("text-ranking", ("relevant",), {}, ranker_answers),
    "raw-ranker": ("text-ranking", ("relevant",), IDENTITY, ranker_answers),
    "tokens": ("token-classification", ENTITIES, {}, token_answers),
}
"""Task, labels, changes of the configuration, and the reference."""


def write_model(folder: Path, name: str) -> None:
    """Write the export of one model and its facts."""
    task, labels, changes, answers = MODELS[name]
    head = "ForTokenClassification" if task == "token-classification" else None
    checkpoint = write_text_checkpoint(
        folder / "checkpoint", "BERT", classes=tuple(labels), head=head, **changes
    )
    write_pair_template(checkpoint)
    if name == "ranker":
        # The other ranker's tokenizer does not tell a pair's second text from its first.
        configuration = checkpoint / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        configuration.write_text(json.dumps(json.loads(configuration.read_text()) | names))
    source = SourceModel(checkpoint, longest=LONGEST, task=task)
    samples: list[Any] = [tuple(pair) for pair in pairs()] if task == "text-ranking" else texts(20)
    network = export(source, samples, folder, longest=LONGEST)
    facts = {
        "task": task,
        "labels": network.labels,
        "activation": network.facts["activation"],
        "inputs": [record.model_dump(mode="json") for record in network.inputs],
        "outputs": [record.model_dump(mode="json") for record in network.outputs],
        "samples": samples,
        "expected": answers(checkpoint),
    }
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    # Tiny models: a second thread only waits.
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for model in MODELS:
        root = Path(sys.argv[1]) / model
        root.mkdir(parents=True)
        write_model(root, model)

"""What the source itself answers to held-out texts: computed once, and kept by digest.

Log-probabilities of each sample are a file of half precision [tokens, vocabulary]; what they are of
decides the name of their folder, so that a later build in the same work folder reads the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np

from engine_build.log import Log
from engine_build.store import Store
from engine_build.text_generation.language_model import ROWS, LanguageModel
from engine_build.text_generation.scores import Array
from onboarding.names import network_path
from onboarding.text_generation.task_file import TaskFile

KEY_DIGITS = 20


@dataclass(frozen=True, kw_only=True)
class References:
    """The source's answers, in the work folder's store."""

    source_sha256: str
    samples: Sequence[Sequence[int]]
    here: Store
    scratch: Path
    log: Log

    @cached_property
    def key(self) -> str:
        """Digest of the source, the tokens and the versions that compute."""
        inputs = {
            "source": self.source_sha256,
            "samples": [list(sample) for sample in self.samples],
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "dtype": "float16",
        }
        return _digest(inputs)

    def prepare(self, source: LanguageModel, task: TaskFile | None = None) -> None:
        """Compute what is missing. Raises SourceFault."""
        missing = [n for n in range(len(self.samples)) if self.here.size(self._name(n)) is None]
        if not missing:
            self.log.line("  the source's answers are there")
        for number in missing:
            self.log.progress(f"source: {number} of {len(self.samples)} samples")
            parts = source.log_probabilities(self.samples[number])
            rows: list[Array] = [part.astype(np.float16) for part in parts]
            path = self.scratch / "rows.npy"
            np.save(path, np.concatenate(rows))
            self.here.upload(path, self._name(number))
        if task is not None and self.here.size(self._task_name(task)) is None:
            path = self.scratch / "task.json"
            path.write_text(json.dumps(right_answers(source, task)), encoding="utf-8")
            self.here.upload(path, self._task_name(task))

    def log_probabilities(self, number: int) -> Iterator[Array]:
        """Yield the source's log-probabilities of a sample, [up to 256, vocabulary] at once."""
        path = self.scratch / "reference.npy"
        self.here.download(self._name(number), path)
        rows: Array = np.load(path, mmap_mode="r")
        for start in range(0, len(rows), ROWS):
            yield rows[start : start + ROWS]

    def right_answers(self, task: TaskFile) -> list[bool]:
        """Return which items of a task the source answers right; it is prepared."""
        answers: list[bool] = json.loads(self.here.read(self._task_name(task)) or "")
        return answers

    def _task_name(self, task: TaskFile) -> str:
        return network_path(self.key, f"task-{_digest(task.model_dump(mode='json'))}.json")

    def _name(self, number: int) -> str:
        return network_path(self.key, f"{number:05}.npy")


def right_answers(model: LanguageModel, task: TaskFile) -> list[bool]:
    """Return which items of a task a model answers right."""
    return [
        task.is_right(item, model.answer(task.messages(item), task.max_tokens))
        for item in task.items
    ]


def _digest(inputs: object) -> str:
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

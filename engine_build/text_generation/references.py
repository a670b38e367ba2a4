"""What the source itself answers to held-out texts: computed once, and kept by digest.

Log-probabilities of each sample are a file of half precision [tokens, vocabulary]; what they are of
decides the name of their folder, so that every number format of a model, and every later build,
reads the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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

LARGEST_SHARED_BYTES = 1 << 30
"""Of all files; more are kept in the work folder alone, and computed anew elsewhere."""
RECORD = "reference.json"
KEY_DIGITS = 20


@dataclass(frozen=True, kw_only=True)
class References:
    """The source's answers; `model` loads it where something is not there yet.

    `here` is the work folder's store, `shared` the environment's.
    """

    source_sha256: str
    samples: Sequence[Sequence[int]]
    model: Callable[[], LanguageModel]
    here: Store
    shared: Store | None
    scratch: Path
    log: Log
    _loaded: list[LanguageModel] = field(default_factory=list)

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

    def prepare(self) -> None:
        """Compute what is missing, or fetch it from the environment's store.

        Raises SourceFault and PublishFailed.
        """
        missing = [name for name in self._names() if self.here.size(name) is None]
        if not missing:
            self.log.line("  the source's answers are there")
            return
        if self._fetch(missing):
            self.log.line("  the source's answers come from the store")
            return
        for number, tokens in enumerate(self.samples):
            name = self._name(f"{number:05}.npy")
            self.log.progress(f"source: {number} of {len(self.samples)} samples")
            if self.here.size(name) is None:
                parts = self.source.log_probabilities(tokens)
                rows: list[Array] = [part.astype(np.float16) for part in parts]
                path = self.scratch / "rows.npy"
                np.save(path, np.concatenate(rows))
                self.here.upload(path, name)
        record = self.scratch / RECORD
        record.write_text(json.dumps({"samples": len(self.samples)}), encoding="utf-8")
        self.here.upload(record, self._name(RECORD))
        self._share()

    def log_probabilities(self, number: int) -> Iterator[Array]:
        """Yield the source's log-probabilities of a sample, [up to 256, vocabulary] at once."""
        path = self.scratch / "reference.npy"
        self.here.download(self._name(f"{number:05}.npy"), path)
        rows: Array = np.load(path, mmap_mode="r")
        for start in range(0, len(rows), ROWS):
            yield rows[start : start + ROWS]

    def right_answers(self, task: TaskFile) -> list[bool]:
        """Return which items of a task the source answers right."""
        name = self._name(f"task-{_digest(task.model_dump(mode='json'))}.json")
        known = self.here.read(name) or (None if self.shared is None else self.shared.read(name))
        if known is None:
            right = right_answers(self.source, task)
            path = self.scratch / "task.json"
            path.write_text(json.dumps(right), encoding="utf-8")
            for store in (self.here, self.shared):
                if store is not None:
                    store.upload(path, name, only_if_absent=True)
            return right
        answers: list[bool] = json.loads(known)
        return answers

    @property
    def source(self) -> LanguageModel:
        """The source in memory."""
        if not self._loaded:
            self._loaded.append(self.model())
        return self._loaded[0]

    def keep(self, model: LanguageModel) -> None:
        """Use a source that is loaded already."""
        self._loaded[:] = [model]

    def release(self) -> None:
        """Let go of the source's weights."""
        self._loaded.clear()

    def _names(self) -> list[str]:
        """Return every file's name; the record is the last to be written."""
        files = [f"{number:05}.npy" for number in range(len(self.samples))]
        return [self._name(file) for file in (*files, RECORD)]

    def _name(self, file: str) -> str:
        return network_path(self.key, file)

    def _fetch(self, missing: Sequence[str]) -> bool:
        if self.shared is None or self.shared.size(self._name(RECORD)) is None:
            return False
        path = self.scratch / "fetched"
        for name in missing:
            if not self.shared.download(name, path):
                return False
            self.here.upload(path, name)
        return True

    def _share(self) -> None:
        sizes = [self.here.size(name) or 0 for name in self._names()]
        if self.shared is None or sum(sizes) > LARGEST_SHARED_BYTES:
            return
        path = self.scratch / "shared"
        for name in self._names():
            self.here.download(name, path)
            self.shared.upload(path, name, only_if_absent=True)


def right_answers(model: LanguageModel, task: TaskFile) -> list[bool]:
    """Return which items of a task a model answers right."""
    return [
        task.is_right(item, model.answer(task.messages(item), task.max_tokens))
        for item in task.items
    ]


def _digest(inputs: object) -> str:
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

"""What benchmarks of servers stand on.

The environment of the others, an archive of MiniLM FP32, its files, free ports.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.workload import shuffled_texts
from benchmarks.trees import MODEL, tree_with
from roundhouse.dev.environments import Workshop, prepare
from roundhouse.dev.recipes import BENCH
from roundhouse.errors import NotReadyError
from roundhouse.paths import Paths
from roundhouse.processes import Command, Processes

MAX_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class Fixtures:
    """An extracted archive and the real sentences that servers of it are asked."""

    at: Paths
    place: Path
    archive: Path
    texts: tuple[str, ...]

    @property
    def engine(self) -> Path:
        """The network."""
        return self.archive / MODEL / "1" / "model.onnx"

    @property
    def tokenizer(self) -> Path:
        """Its tokenizer."""
        return self.archive / MODEL / "1" / "tokenizer.json"

    @property
    def texts_file(self) -> Path:
        """The sentences, one a line."""
        return self.place / "texts.txt"


def others(at: Paths, run: Processes) -> None:
    """Makes the environment of what our servers are measured against. Raises ValueError."""
    python = Path(os.path.realpath(sys.executable))
    try:
        prepare(Workshop(root=at.code, python=python, run=run, say=print, stop=run.stop), (BENCH,))
    except NotReadyError as fault:
        raise ValueError(str(fault)) from fault


def minilm(at: Paths, run: Processes, variables: Mapping[str, str], place: Path) -> Fixtures:
    """The archive of MiniLM FP32, built by the real command line.

    A known engine is not built again. Raises ValueError.
    """
    shared = at.build / "bench" / "servers"
    changes = {"engine": {"precision": "fp32", "sensitivity_search": None, "calibration": None}}
    tree = tree_with(at.tree, shared / "tree", changes)
    where = (
        "--root",
        str(tree),
        "--environment",
        "local",
        "--model",
        MODEL,
        "--out",
        str(shared / "out"),
    )
    argv = (
        str(at.venv_python("builder")),
        "-m",
        "engine_build",
        *where,
        "--publish",
        str(shared / "store"),
        "--format",
        "json",
    )
    command = Command(argv=argv, folder=at.code, environment=dict(variables))
    outcome = run(command)
    if outcome.code != 0:
        raise ValueError(f"{command} ended with {outcome.code}: {outcome.last_lines()}")
    built = json.loads(outcome.output.strip().splitlines()[-1])
    archive = _extracted(
        shared / "store" / built["archive"]["path"], shared / "archives" / built["engine_key"]
    )
    fixtures = Fixtures(at=at, place=place, archive=archive, texts=tuple(shuffled_texts(at.tree)))
    place.mkdir(parents=True, exist_ok=True)
    fixtures.texts_file.write_text("\n".join(fixtures.texts) + "\n", encoding="utf-8")
    return fixtures


def checkpoint(fixtures: Fixtures) -> Path:
    """A folder that transformers reads a tokenizer from."""
    folder = fixtures.place / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(fixtures.tokenizer, folder)
    words = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", **words})
    )
    return folder


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rounds_wanted(variables: Mapping[str, str], default: int) -> int:
    """BENCH_ROUNDS, for a quick look. Raises ValueError."""
    text = variables.get("BENCH_ROUNDS") or str(default)
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"BENCH_ROUNDS is {text!r}; it must be a whole number from 1 up.")
    return int(text)


def _extracted(archive: Path, folder: Path) -> Path:
    if not folder.is_dir():
        draft = folder.with_name(f"{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        draft.rename(folder)
    return folder

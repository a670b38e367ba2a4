"""An archive of MiniLM with its texts, and the environment of the servers beside ours."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.context import Context
from benchmarks.servers.workload import shuffled_texts
from benchmarks.trees import MODEL, build_command, tree_with
from roundhouse.dev.environments import prepare, this_workshop
from roundhouse.dev.recipes import BENCH
from roundhouse.errors import NotReadyError
from roundhouse.paths import Paths

MAX_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class Fixtures:
    """An extracted archive, and the real sentences that its servers receive."""

    paths: Paths
    folder: Path
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


def prepare_bench_environment(context: Context) -> None:
    """Make the environment of what our servers are measured against. Raises ValueError."""
    try:
        prepare(this_workshop(context.paths.code, context.run), (BENCH,))
    except NotReadyError as error:
        raise ValueError(str(error)) from error


def minilm(context: Context, folder: Path) -> Fixtures:
    """Return the archive of MiniLM FP32, built by the real command line unless it is known.

    Raises ValueError.
    """
    shared, paths = context.folder("servers"), context.paths
    changes = {"engine": {"precision": "fp32", "sensitivity_search": None, "calibration": None}}
    tree = tree_with(paths.tree, shared / "tree", changes)
    command = build_command(context, tree, shared / "out", shared / "store")
    outcome = context.run(command)
    if outcome.code != 0:
        raise ValueError(f"{command} ended with {outcome.code}: {outcome.last_lines()}")
    built = json.loads(outcome.output.strip().splitlines()[-1])
    archive = shared / "archives" / built["engine_key"]
    if not archive.is_dir():
        draft = archive.with_name(f"{archive.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        with tarfile.open(shared / "store" / built["archive"]["path"]) as packed:
            packed.extractall(draft, filter="data")
        draft.rename(archive)
    texts = tuple(shuffled_texts(paths.tree))
    return Fixtures(paths=paths, folder=folder, archive=archive, texts=texts)


def write_checkpoint(fixtures: Fixtures) -> Path:
    """Write a folder that transformers reads a tokenizer from."""
    folder = fixtures.folder / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(fixtures.tokenizer, folder)
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    config = {"tokenizer_class": "BertTokenizer", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder

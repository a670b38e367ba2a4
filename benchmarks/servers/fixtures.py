"""An archive of MiniLM with its texts."""

from __future__ import annotations

import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.measure import Context
from benchmarks.servers.running_server import MODEL
from benchmarks.servers.workload import shuffled_texts
from roundhouse.paths import Paths
from roundhouse.processes import Command

ENVIRONMENT = "local"
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


def minilm(context: Context, folder: Path) -> Fixtures:
    """Return the archive of MiniLM FP32, built by the real command line unless it is known.

    Raises ValueError.
    """
    shared, paths = context.folder("archive"), context.paths
    tree = write_tree(paths.tree, shared / "tree")
    subject = ("--environment", ENVIRONMENT, "--model", MODEL, "--format", "json")
    folders = {"--root": tree, "--out": shared / "out", "--publish": shared / "store"}
    words = (str(word) for pair in folders.items() for word in pair)
    argv = (str(paths.venv_python("builder")), "-m", "engine_build", *subject, *words)
    command = Command(argv=argv, folder=paths.code, environment=context.variables)
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


def write_tree(root: Path, folder: Path) -> Path:
    """Write an onboarding tree of the shipped model in FP32 on a CPU, and the environment local."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "models/data", folder / "models/data")
    spec = yaml.safe_load((root / f"models/{MODEL}.yaml").read_text(encoding="utf-8"))
    left_out = ("sensitivity_search", "calibration")
    engine = {key: value for key, value in spec["engine"].items() if key not in left_out}
    spec |= {"engine": {**engine, "precision": "fp32"}}
    spec["endpoint"] = {**spec["endpoint"], "instance_type": "ml.c7i.large"}
    file = f"environments/{ENVIRONMENT}.yaml"
    facts = yaml.safe_load((root / file).read_text(encoding="utf-8"))
    kept = {key: facts[key] for key in ("name", "account", "region", "platform")}
    for path, value in ((f"models/{MODEL}.yaml", spec), (file, kept)):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    return folder

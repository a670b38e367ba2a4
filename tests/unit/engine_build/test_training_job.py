"""The SageMaker training job's entry, in folders that play /opt/ml."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine_build import training_job
from engine_build.options import options
from engine_build.training_job import JobPaths, main, source_tree

REQUIRED = {"environment": "dev", "model": "tiny", "publish": "s3://bucket"}
REASON = "accuracy budget missed: 0.5."
FAILURE = json.dumps({"status": "failed", "reason": REASON})


@pytest.fixture
def paths(tmp_path) -> JobPaths:
    """A job with a good source and good hyperparameters."""
    paths = JobPaths(ml=tmp_path / "ml", tree=tmp_path / "tree")
    (paths.source / "models").mkdir(parents=True)
    paths.hyperparameters.parent.mkdir(parents=True)
    paths.hyperparameters.write_text(json.dumps(REQUIRED))
    return paths


class Build:
    """Plays engine_build's main."""

    def __init__(
        self, code: int = 0, output: str = "", *, raises: BaseException | None = None
    ) -> None:
        self.code, self.output, self.raises = code, output, raises
        self.trees: list[Path] = []

    def load(self, tree):
        self.trees.append(tree)
        return self

    def __call__(self, arguments, environment, stdout, stderr):
        self.arguments, self.environment = arguments, environment
        out = Path(arguments[arguments.index("--out") + 1])
        out.mkdir(parents=True)
        for name in ("build.log", "reproduce.sh", "networks"):
            (out / name).write_text(name)
        print("a step", file=stderr)
        print(self.output, file=stdout)
        if self.raises is not None:
            raise self.raises
        return self.code


def run(paths, build, environment=None):
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main(paths, environment or {}, stdout, stderr, build.load)
    return code, stdout.getvalue(), stderr.getvalue()


def test_job_runs_the_same_command_as_any_other_build(paths):
    more = {"commit": "c0ffee", "image": "builder-gpu@sha256:1", "compute_capability": "8.9"}
    more["candidate"] = "0a1b-0"
    values = {**REQUIRED, **more, "sagemaker_region": "us-east-1"}
    paths.hyperparameters.write_text(json.dumps(values))
    build = Build()
    assert run(paths, build, {"PATH": "/bin"})[0] == 0
    assert build.trees == [paths.source]
    line = (
        f"--root {paths.source} --out {paths.out} --environment dev --model tiny --publish "
        "s3://bucket --compute-capability 8.9 --candidate 0a1b-0 --format json"
    )
    assert build.arguments == tuple(line.split())
    chosen = options(build.arguments)
    assert (chosen.environment, chosen.publish, chosen.candidate) == (
        "dev",
        "s3://bucket",
        "0a1b-0",
    )
    assert build.environment == {
        "PATH": "/bin",
        "ROUNDHOUSE_SOURCE_COMMIT": "c0ffee",
        "ROUNDHOUSE_IMAGE": "builder-gpu@sha256:1",
    }
    assert not paths.failure.exists()
    values = {**REQUIRED, "checkpoint_key": "0a" * 10, "candidate": "0a1b-0"}
    arguments = training_job.arguments(values, Path("tree"), Path("out"))
    assert options(arguments).key == "0a" * 10


@pytest.mark.parametrize("code", [0, 3])
def test_log_script_and_result_are_kept_whatever_came(paths, code):
    ended, output, _ = run(paths, Build(code, FAILURE))
    assert (ended, output.strip()) == (code, FAILURE)
    assert {path.name: path.read_text().strip() for path in paths.data.iterdir()} == {
        "build.log": "build.log",
        "reproduce.sh": "reproduce.sh",
        "result.json": FAILURE,
    }


def test_zip_is_unpacked_afresh(paths):
    (paths.source / "models").rmdir()
    paths.tree.mkdir()
    (paths.tree / "old").touch()
    with zipfile.ZipFile(paths.source / "0123.zip", "w") as archive:
        archive.writestr("models/tiny.yaml", "name: tiny")
        archive.writestr("../outside", "never")
    assert source_tree(paths) == paths.tree
    assert sorted(path.name for path in paths.tree.iterdir()) == ["models", "outside"]
    assert not (paths.tree.parent / "outside").exists()


@pytest.mark.parametrize(
    ("build", "code", "failure"),
    [
        (Build(3, FAILURE), 3, REASON),
        (Build(1, json.dumps({"reason": "x" * 2000})), 1, "x" * 1024),
        (Build(4, "not json"), 4, "the build ended with code 4; its log has the reason."),
        (
            Build(raises=ImportError("No module\n named x")),
            1,
            "the source cannot be run (ImportError: No module named x); upload it whole.",
        ),
        (
            Build(raises=KeyboardInterrupt()),
            130,
            "interrupted before the build began; start the job again.",
        ),
    ],
)
def test_failure_is_one_sentence_as_long_as_sagemaker_tells(paths, build, code, failure):
    ended, _, errors = run(paths, build)
    assert (ended, paths.failure.read_text()) == (code, failure)
    assert f"training job failed: {failure}" in errors


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"environment": "dev", "model": "tiny"}, "publish is missing"),
        ({**REQUIRED, "modle": "tiny"}, "modle is unknown"),
        ({**REQUIRED, "commit": ""}, "commit is ''"),
        ({**REQUIRED, "model": 3}, "model is 3"),
        ({}, "environment is missing, model is missing, publish is missing"),
        ([], "holds list; give an object of strings"),
        (None, "hyperparameters.json cannot be read"),
    ],
)
def test_refuses_hyperparameters_by_name(paths, values, words):
    paths.hyperparameters.write_text("" if values is None else json.dumps(values))
    build = Build()
    assert run(paths, build)[0] == 1
    assert words in paths.failure.read_text() and build.trees == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (None, "channel source brings no models/ (0 zips); give it one zip"),
        (b"PK damaged", "0123.zip of channel source cannot be unpacked"),
    ],
)
def test_refuses_a_channel_without_a_whole_source(paths, damage, words):
    (paths.source / "models").rmdir()
    if damage is not None:
        (paths.source / "0123.zip").write_bytes(damage)
    assert run(paths, Build())[0] == 1
    assert paths.failure.read_text().startswith(words)


def test_file_imports_the_standard_library_only():
    tree = ast.parse(Path(training_job.__file__).read_text())
    # Inside functions it may import what the channel brings.
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names


STAND_IN = """
import json, os, sys
def main(arguments, environment, stdout, stderr):
    try:
        print("ready", file=stderr, flush=True)
        sys.stdin.readline()
        print(json.dumps({"folder": os.getcwd(), "path": sys.path[0]}), file=stdout)
        return 0
    except KeyboardInterrupt:
        print(json.dumps({"reason": "interrupted"}), file=stdout)
        return 130
"""
ENTRY = """
import signal, sys, runpy
from pathlib import Path
job = runpy.run_path(sys.argv[1])
signal.signal(signal.SIGTERM, job["interrupt"])
paths = job["JobPaths"](ml=Path(sys.argv[2]), tree=Path(sys.argv[3]))
sys.exit(job["main"](paths, {}, sys.stdout, sys.stderr))
"""


@pytest.fixture
def job(paths):
    """The file as the image has it, alone, in a process, with a source whose engine_build waits."""
    (paths.source / "engine_build").mkdir()
    (paths.source / "engine_build" / "__init__.py").touch()
    (paths.source / "engine_build" / "__main__.py").write_text(STAND_IN)
    files = (training_job.__file__, str(paths.ml), str(paths.tree))
    process = subprocess.Popen(
        (sys.executable, "-I", "-W", "error", "-c", ENTRY, *files),
        cwd="/",
        text=True,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.kill()
    process.communicate()


def test_sigterm_ends_a_job_as_an_interruption(job, paths):
    assert job.stderr.readline() == "ready\n"
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert (job.returncode, paths.failure.read_text()) == (130, "interrupted")

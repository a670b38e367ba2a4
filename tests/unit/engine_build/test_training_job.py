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
from engine_build.training_job import JobPaths, JobRefused, hyperparameters, main, source_tree

WISHES = {"environment": "dev", "model": "tiny", "publish": "s3://bucket"}
REASON = "accuracy budget missed: 0.5."


@pytest.fixture
def places(tmp_path) -> JobPaths:
    """A job with a good source and good hyperparameters."""
    found = JobPaths(ml=tmp_path / "ml", tree=tmp_path / "tree")
    (found.source / "models").mkdir(parents=True)
    wish(found, WISHES)
    return found


def wish(places, hyperparameter_values):
    places.hyperparameters.parent.mkdir(parents=True, exist_ok=True)
    places.hyperparameters.write_text(json.dumps(hyperparameter_values))


class Build:
    """Plays engine_build's main."""

    def __init__(
        self, code: int = 0, said: str = "", *, raises: BaseException | None = None
    ) -> None:
        self.code, self.said, self.raises = code, said, raises
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
        print(self.said, file=stdout)
        if self.raises is not None:
            raise self.raises
        return self.code


def run(places, build, environment=None):
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main(places, {} if environment is None else environment, stdout, stderr, build.load)
    return code, stdout.getvalue(), stderr.getvalue()


def test_job_runs_the_same_command_as_any_other_build(places):
    also = {
        "commit": "c0ffee",
        "image": "builder-gpu@sha256:1",
        "compute_capability": "8.9",
        "sagemaker_region": "us-east-1",
    }
    wish(places, {**WISHES, **also})
    build = Build()
    assert run(places, build, {"PATH": "/bin"})[0] == 0
    assert build.trees == [places.source]
    assert build.arguments == (
        *("--root", str(places.source), "--out", str(places.out)),
        *(
            "--environment",
            "dev",
            "--model",
            "tiny",
            "--publish",
            "s3://bucket",
            "--compute-capability",
            "8.9",
        ),
        *("--format", "json"),
    )
    assert build.environment == {
        "PATH": "/bin",
        "ROUNDHOUSE_SOURCE_COMMIT": "c0ffee",
        "ROUNDHOUSE_IMAGE": "builder-gpu@sha256:1",
    }
    assert not places.failure.exists()


def test_engine_build_takes_those_arguments():
    from engine_build.options import options

    assert (
        options(training_job.arguments(WISHES, Path("tree"), Path("out"))).compute_capability
        is None
    )
    found = options(
        training_job.arguments({**WISHES, "compute_capability": "8.9"}, Path("tree"), Path("out"))
    )
    assert found.compute_capability == "8.9"
    assert (found.root, found.out, found.environment, found.model) == (
        Path("tree"),
        Path("out"),
        "dev",
        "tiny",
    )
    assert (found.publish, found.format) == ("s3://bucket", "json")


def test_unfinished_work_lies_where_sagemaker_saves_it():
    assert (JobPaths().out, JobPaths().failure) == (
        Path("/opt/ml/checkpoints/engine"),
        Path("/opt/ml/output/failure"),
    )
    assert (JobPaths().source, JobPaths().data) == (
        Path("/opt/ml/input/data/source"),
        Path("/opt/ml/output/data"),
    )
    assert JobPaths().hyperparameters == Path("/opt/ml/input/config/hyperparameters.json")


@pytest.mark.parametrize("code", [0, 3])
def test_log_script_and_result_are_kept_whatever_came(places, code):
    result = json.dumps({"status": "failed", "reason": REASON})
    answer = run(places, Build(code, result))
    assert (answer[0], answer[1].strip()) == (code, result)
    assert {path.name: path.read_text().strip() for path in places.data.iterdir()} == {
        "build.log": "build.log",
        "reproduce.sh": "reproduce.sh",
        "result.json": result,
    }


def test_zip_is_unpacked_afresh(places):
    (places.source / "models").rmdir()
    places.tree.mkdir()
    (places.tree / "old").touch()
    with zipfile.ZipFile(places.source / "0123.zip", "w") as archive:
        archive.writestr("models/tiny.yaml", "name: tiny")
        archive.writestr("../outside", "never")
    assert source_tree(places) == places.tree
    assert sorted(path.name for path in places.tree.iterdir()) == ["models", "outside"]
    assert not (places.tree.parent / "outside").exists()


def test_failure_is_the_builds_own_sentence(places):
    code, _, errors = run(places, Build(3, json.dumps({"status": "failed", "reason": REASON})))
    assert (code, places.failure.read_text()) == (3, REASON)
    assert errors.endswith(f"training job failed: {REASON}\n")


def test_failure_is_cut_at_what_sagemaker_tells(places):
    run(places, Build(1, json.dumps({"reason": "x" * 2000})))
    assert places.failure.read_text() == "x" * 1024


def test_failure_without_a_sentence_points_to_the_log(places):
    run(places, Build(4, "not json"))
    assert places.failure.read_text() == "the build ended with code 4; its log has the reason."


def test_fault_of_the_source_is_one_sentence(places):
    assert run(places, Build(raises=ImportError("No module\n named x")))[0] == 1
    assert (
        places.failure.read_text()
        == "the source cannot be run (ImportError: No module named x); upload it whole."
    )


def test_interruption_before_the_build_is_told(places):
    assert run(places, Build(raises=KeyboardInterrupt()))[0] == 130
    assert places.failure.read_text().startswith("interrupted before the build began")


@pytest.mark.parametrize(
    ("hyperparameter_values", "words"),
    [
        ({"environment": "dev", "model": "tiny"}, "publish is missing"),
        ({**WISHES, "modle": "tiny"}, "modle is unknown"),
        ({**WISHES, "commit": ""}, "commit is ''"),
        ({**WISHES, "model": 3}, "model is 3"),
        ({}, "environment is missing, model is missing, publish is missing"),
        ([], "holds list; give an object of strings"),
    ],
)
def test_refuses_hyperparameters_by_name(places, hyperparameter_values, words):
    wish(places, hyperparameter_values)
    build = Build()
    assert run(places, build)[0] == 1
    assert words in places.failure.read_text() and build.trees == []


def test_refuses_hyperparameters_that_are_not_there(tmp_path):
    with pytest.raises(JobRefused, match=r"hyperparameters.json cannot be read"):
        hyperparameters(tmp_path / "hyperparameters.json")


def test_refuses_a_channel_without_a_source(places):
    (places.source / "models").rmdir()
    with pytest.raises(JobRefused, match=r"channel source brings no models/ \(0 zips\)"):
        source_tree(places)


def test_refuses_a_damaged_zip(places):
    (places.source / "0123.zip").write_bytes(b"PK damaged")
    assert run(places, Build())[0] == 1
    assert places.failure.read_text().startswith("0123.zip of channel source cannot be unpacked")


def test_file_imports_the_standard_library_only():
    tree = ast.parse(Path(training_job.__file__).read_text())
    # Inside functions it may import what the channel brings.
    named = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    roots = {(getattr(node, "module", None) or node.names[0].name).split(".")[0] for node in named}
    assert roots <= sys.stdlib_module_names


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
places = job["JobPaths"](ml=Path(sys.argv[2]), tree=Path(sys.argv[3]))
sys.exit(job["main"](places, {}, sys.stdout, sys.stderr))
"""


@pytest.fixture
def job(places):
    """The file as the image has it, alone, in a process, with a source whose engine_build waits."""
    (places.source / "engine_build").mkdir()
    (places.source / "engine_build" / "__init__.py").touch()
    (places.source / "engine_build" / "__main__.py").write_text(STAND_IN)
    command = (
        sys.executable,
        "-I",
        "-W",
        "error",
        "-c",
        ENTRY,
        training_job.__file__,
        str(places.ml),
        str(places.tree),
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        command, cwd="/", text=True, env={"PATH": os.environ["PATH"]}, **pipes
    )
    yield process
    process.kill()
    process.communicate()


def test_file_alone_runs_the_sources_engine_build_in_its_folder(job, places):
    out, errors = job.communicate("\n", timeout=60)
    assert job.returncode == 0, errors
    assert json.loads(out) == {"folder": str(places.source), "path": str(places.source)}


def test_sigterm_ends_a_job_as_an_interruption(job, places):
    assert job.stderr.readline() == "ready\n"
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert (job.returncode, places.failure.read_text()) == (130, "interrupted")

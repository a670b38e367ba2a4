"""`python -m engine_build.training_job`.

One build as a SageMaker training job, by the contract of /opt/ml.

The builder images hold this file alone, as the program `train`: everything else comes in the job's
channel `source`, the zip that a CodeBuild build gets too, or a folder. So it imports the standard
library only, and engine_build from what the channel brings. (Run with -m in a checkout, the
checkout's engine_build builds the channel's models.)

Hyperparameters: environment, model, publish (s3://BUCKET) and, if wanted, compute_capability,
candidate, commit, image, and of a text generator's checkpoint checkpoint_key, all strings.
Unfinished work lies in /opt/ml/checkpoints, which SageMaker keeps in S3 with a CheckpointConfig; a
build of a candidate takes over none of it. Never run by SageMaker where this was written.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO

Build = Callable[[Sequence[str], Mapping[str, str], TextIO, TextIO], int]
"""engine_build's own main: arguments, environment, stdout, stderr to an exit code."""
REQUIRED = ("environment", "model", "publish")
OPTIONAL = {
    "compute_capability": "--compute-capability",
    "candidate": "--candidate",
    "checkpoint_key": "--key",
}
"""Hyperparameters that may be left out, and the options that they become."""
VARIABLES = {"commit": "ROUNDHOUSE_SOURCE_COMMIT", "image": "ROUNDHOUSE_IMAGE"}
"""Hyperparameters that may be left out, and engine_build's variables that they become."""
SAGEMAKERS_OWN = "sagemaker_"
"""What the names of hyperparameters begin with that the SageMaker SDK adds by itself."""
LONGEST_REASON = 1024
"""Characters of the failure file that DescribeTrainingJob tells."""
RESULTS = ("build.log", "reproduce.sh")
REFUSED, INTERRUPTED = 1, 130


class JobRefused(Exception):
    """The job cannot begin; the message is one sentence."""


class JobPaths:
    """Where SageMaker puts and takes files; a zip is unpacked to `tree`."""

    def __init__(
        self, ml: Path = Path("/opt/ml"), tree: Path = Path("/tmp/roundhouse-source")
    ) -> None:
        self.ml = ml
        self.tree = tree
        self.hyperparameters = ml / "input/config/hyperparameters.json"
        self.source = ml / "input/data/source"
        self.out = ml / "checkpoints/engine"
        """The work folder; SageMaker copies it to S3, and back, with a CheckpointConfig."""
        self.failure = ml / "output/failure"
        self.data = ml / "output/data"
        """What SageMaker keeps of a job, failed or not."""


def main(
    paths: JobPaths,
    environment: Mapping[str, str],
    stdout: TextIO,
    stderr: TextIO,
    load: Callable[[Path], Build] | None = None,
) -> int:
    """Return 0, or the exit code of a build that failed, whose reason the failure file tells."""
    output, reason = io.StringIO(), None
    try:
        values = hyperparameters(paths.hyperparameters)
        tree = source_tree(paths)
        build = (load_build if load is None else load)(tree)
        named = {VARIABLES[name]: value for name, value in values.items() if name in VARIABLES}
        options = arguments(values, tree, paths.out)
        code = build(options, {**environment, **named}, output, stderr)
        if code != 0:
            reason = _reason(output.getvalue(), code)
    except JobRefused as error:
        code, reason = REFUSED, str(error)
    except KeyboardInterrupt:
        code, reason = INTERRUPTED, "interrupted before the build began; start the job again."
    except Exception as error:
        fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
        code, reason = REFUSED, f"the source cannot be run ({fault}); upload it whole."
    _keep_results(paths, output.getvalue())
    print(output.getvalue(), end="", file=stdout, flush=True)
    if reason is not None:
        print(f"training job failed: {reason}", file=stderr, flush=True)
        _write(paths.failure, reason[:LONGEST_REASON])
    return code


def hyperparameters(path: Path) -> dict[str, str]:
    """Read the job's own. Raises JobRefused for each that is missing, unknown or no string."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobRefused(
            f"{path} cannot be read ({error}); give the training job hyperparameters."
        ) from error
    if not isinstance(read, dict):
        raise JobRefused(f"{path} holds {type(read).__name__}; give an object of strings.")
    values = {name: value for name, value in read.items() if not name.startswith(SAGEMAKERS_OWN)}
    known = (*REQUIRED, *OPTIONAL, *VARIABLES)
    faults = [f"{name} is missing" for name in REQUIRED if name not in values]
    faults += [f"{name} is unknown" for name in values if name not in known]
    faults += [
        f"{name} is {value!r}"
        for name, value in values.items()
        if name in known and not (isinstance(value, str) and value)
    ]
    if faults:
        raise JobRefused(
            f"hyperparameters: {', '.join(faults)}; allowed: {', '.join(known)}, each a string "
            "that is not empty."
        )
    return values


def source_tree(paths: JobPaths) -> Path:
    """Return the folder with models/ and engine_build/ that the channel brings.

    A zip is unpacked. Raises JobRefused.
    """
    zips, tree = sorted(paths.source.glob("*.zip")), paths.source
    if len(zips) == 1:
        tree = paths.tree
        try:
            shutil.rmtree(tree, ignore_errors=True)
            with zipfile.ZipFile(zips[0]) as archive:
                archive.extractall(tree)
        except (OSError, zipfile.BadZipFile) as error:
            raise JobRefused(
                f"{zips[0].name} of channel source cannot be unpacked ({error}); upload it again."
            ) from error
    if not (tree / "models").is_dir():
        raise JobRefused(
            f"channel source brings no models/ ({len(zips)} zips); give it one zip of the "
            "repository, or its folder."
        )
    return tree


def load_build(tree: Path) -> Build:
    """Import the tree's own engine_build; its child processes find it in the current folder."""
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    # The channel's, not the image's: the builder images hold this file alone.
    build: Build = importlib.import_module("engine_build.__main__").main
    return build


def arguments(values: Mapping[str, str], tree: Path, out: Path) -> tuple[str, ...]:
    """Return the command line that builds."""
    options = {"--root": str(tree), "--out": str(out)}
    options |= {f"--{name}": values[name] for name in REQUIRED}
    options |= {option: values[name] for name, option in OPTIONAL.items() if name in values}
    words = (word for pair in options.items() for word in pair)
    return (*words, "--format", "json")


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the build as Ctrl-C does, once.

    SageMaker stops a job by SIGTERM, and by SIGKILL 120 seconds later.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _keep_results(paths: JobPaths, output: str) -> None:
    """Copy the log, the script that repeats the build, and its result to the job's output."""
    for name in RESULTS:
        if (paths.out / name).is_file():
            paths.data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(paths.out / name, paths.data / name)
    if output:
        _write(paths.data / "result.json", output)


def _reason(output: str, code: int) -> str:
    try:
        return str(json.loads(output.strip().splitlines()[-1])["reason"])
    except (IndexError, KeyError, TypeError, ValueError):
        return f"the build ended with code {code}; its log has the reason."


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(JobPaths(), os.environ, sys.stdout, sys.stderr))

"""`python -m engine_build.training_job`.

One build as a SageMaker training job, by the contract of /opt/ml.

The builder images hold this file alone, as the program `train`: everything else comes in the job's
channel `source`, the zip that
a CodeBuild build gets too, or a folder. So it imports the standard library only, and engine_build
from what the channel brings.
(Run with -m in a checkout, the checkout's engine_build builds the channel's models.)
Hyperparameters: environment, model, publish
(s3://BUCKET) and, if wanted, compute_capability, commit and image, all strings. Unfinished work
lies in /opt/ml/checkpoints, so
a job with a CheckpointConfig goes on where an interrupted one stopped. Never run by SageMaker where
this was written.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

Build = Callable[[Sequence[str], Mapping[str, str], TextIO, TextIO], int]
"""engine_build's own main: arguments, environment, stdout, stderr to an exit code."""
REQUIRED = ("environment", "model", "publish")
OPTIONAL = {"compute_capability": "--compute-capability"}
"""Hyperparameters that may be left out, and the options that they become."""
VARIABLES = {"commit": "ROUNDHOUSE_SOURCE_COMMIT", "image": "ROUNDHOUSE_IMAGE"}
"""Hyperparameters that may be left out, and the variables of engine_build's settings that they
become.
"""
SAGEMAKERS_OWN = "sagemaker_"
"""What the names of hyperparameters begin with that the SageMaker SDK adds by itself."""
LONGEST_REASON = 1024
"""Characters of the failure file that DescribeTrainingJob tells."""
RESULTS = ("build.log", "reproduce.sh")
REFUSED, INTERRUPTED = 1, 130


class JobRefused(Exception):
    """The job cannot begin; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where SageMaker puts and takes files."""

    ml: Path = Path("/opt/ml")
    tree: Path = Path("/tmp/roundhouse-source")
    """Where a zip is unpacked."""

    @property
    def hyperparameters(self) -> Path:
        """One JSON object of strings."""
        return self.ml / "input/config/hyperparameters.json"

    @property
    def source(self) -> Path:
        """The channel `source`."""
        return self.ml / "input/data/source"

    @property
    def out(self) -> Path:
        """The work folder.

        SageMaker copies it to S3, and back, when the job has a CheckpointConfig.
        """
        return self.ml / "checkpoints/engine"

    @property
    def failure(self) -> Path:
        """Why the job failed."""
        return self.ml / "output/failure"

    @property
    def data(self) -> Path:
        """What SageMaker keeps of a job, failed or not."""
        return self.ml / "output/data"


def main(
    places: Places,
    environment: Mapping[str, str],
    stdout: TextIO,
    stderr: TextIO,
    load: Callable[[Path], Build] | None = None,
) -> int:
    """0, or the exit code of the build that failed.

    Then the failure file holds the reason in one sentence.
    """
    output = io.StringIO()
    try:
        hyperparameter_values = hyperparameters(places.hyperparameters)
        tree = source_tree(places)
        build = (load_build if load is None else load)(tree)
        code = build(
            arguments(hyperparameter_values, tree, places.out),
            {**environment, **variables(hyperparameter_values)},
            output,
            stderr,
        )
        reason = None if code == 0 else _reason(output.getvalue(), code)
    except JobRefused as error:
        code, reason = REFUSED, str(error)
    except KeyboardInterrupt:
        code, reason = INTERRUPTED, "interrupted before the build began; start the job again."
    except Exception as error:
        code, reason = (
            REFUSED,
            f"the source cannot be run ({type(error).__name__}: {' '.join(str(error).split())}); "
            "upload it whole.",
        )
    keep_results(places, output.getvalue())
    print(output.getvalue(), end="", file=stdout, flush=True)
    if reason is not None:
        print(f"training job failed: {reason}", file=stderr, flush=True)
        _write(places.failure, reason[:LONGEST_REASON])
    return code


def hyperparameters(path: Path) -> dict[str, str]:
    """The job's wishes. Raises JobRefused for each that is missing, unknown or no string."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobRefused(
            f"{path} cannot be read ({error}); give the training job hyperparameters."
        ) from error
    if not isinstance(read, dict):
        raise JobRefused(f"{path} holds {type(read).__name__}; give an object of strings.")
    given = {name: value for name, value in read.items() if not name.startswith(SAGEMAKERS_OWN)}
    known = (*REQUIRED, *OPTIONAL, *VARIABLES)
    faults = [
        *(f"{name} is missing" for name in REQUIRED if name not in given),
        *(f"{name} is unknown" for name in given if name not in known),
        *(
            f"{name} is {value!r}"
            for name, value in given.items()
            if name in known and not (isinstance(value, str) and value)
        ),
    ]
    if faults:
        raise JobRefused(
            f"hyperparameters: {', '.join(faults)}; allowed: {', '.join(known)}, each a string "
            "that is not empty."
        )
    return given


def source_tree(places: Places) -> Path:
    """Return the folder with models/ and engine_build/ that the channel brings.

    A zip is unpacked. Raises JobRefused.
    """
    zips = sorted(places.source.glob("*.zip"))
    if len(zips) == 1:
        try:
            shutil.rmtree(places.tree, ignore_errors=True)
            with zipfile.ZipFile(zips[0]) as archive:
                archive.extractall(places.tree)
        except (OSError, zipfile.BadZipFile) as error:
            raise JobRefused(
                f"{zips[0].name} of channel source cannot be unpacked ({error}); upload it again."
            ) from error
    tree = places.tree if len(zips) == 1 else places.source
    if not (tree / "models").is_dir():
        raise JobRefused(
            f"channel source brings no models/ ({len(zips)} zips); give it one zip of the "
            "repository, or its folder."
        )
    return tree


def load_build(tree: Path) -> Build:
    """The tree's own engine_build.

    Its child processes find it because the tree becomes the current folder.
    """
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    # The channel's, not the image's: the builder images hold this file alone.
    from engine_build.__main__ import main as build

    return build


def arguments(hyperparameter_values: Mapping[str, str], tree: Path, out: Path) -> tuple[str, ...]:
    """The command line that builds."""
    named = {
        "--root": str(tree),
        "--out": str(out),
        **{f"--{name}": hyperparameter_values[name] for name in REQUIRED},
    }
    chosen = {
        option: hyperparameter_values[name]
        for name, option in OPTIONAL.items()
        if name in hyperparameter_values
    }
    return (*(word for pair in {**named, **chosen}.items() for word in pair), "--format", "json")


def variables(hyperparameter_values: Mapping[str, str]) -> dict[str, str]:
    """The hyperparameters that engine_build reads from its environment."""
    return {
        variable: hyperparameter_values[name]
        for name, variable in VARIABLES.items()
        if name in hyperparameter_values
    }


def keep_results(places: Places, output: str) -> None:
    """Copy the log, the script that repeats the build, and its result to the job's output."""
    for name in RESULTS:
        if (places.out / name).is_file():
            places.data.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(places.out / name, places.data / name)
    if output:
        _write(places.data / "result.json", output)


def interrupt(number: int, frame: FrameType | None) -> None:
    """End the build as Ctrl-C does, once.

    SageMaker stops a job by SIGTERM, and by SIGKILL 120 seconds later.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _reason(output: str, code: int) -> str:
    try:
        reason: str = json.loads(output.strip().splitlines()[-1])["reason"]
        return reason
    except (IndexError, KeyError, TypeError, ValueError):
        return f"the build ended with code {code}; its log has the reason."


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main(Places(), os.environ, sys.stdout, sys.stderr))

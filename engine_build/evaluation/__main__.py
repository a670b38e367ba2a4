"""`python -m engine_build.evaluation`: networks, plans and a checkpoint in every runtime here."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from engine_build.datasets.dataset import Shape
from engine_build.errors import BuildError, InputRefused
from engine_build.evaluation.comparison import (
    artifact_inputs,
    compare,
    comparison_data,
    format_comparison,
)
from engine_build.evaluation.runtimes import (
    Artifacts,
    Runtimes,
    Source,
    machine_runtimes,
    missing_runtimes,
    runnable,
)
from engine_build.machine import description
from engine_build.options import Parser
from onboarding.values import TEXT_TASKS

SHAPES = "1x8,8x64,32x128"


def main(
    arguments: Sequence[str],
    stdout: TextIO,
    stderr: TextIO,
    *,
    runtimes: Runtimes | None = None,
) -> int:
    """Exit with 0 when measured; with 1 for what cannot run here."""
    runtimes = machine_runtimes() if runtimes is None else runtimes
    try:
        parsed = _parser().parse_args(arguments)
        shapes = tuple(map(_shape, parsed.shapes.split(",")))
        artifacts = _artifacts(parsed, shapes)
        subjects, inputs = runnable(artifacts, runtimes), artifact_inputs(artifacts)
        comparison = compare(subjects, inputs, shapes, seconds=parsed.seconds)
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    missing = missing_runtimes(runtimes)
    print(format_comparison(comparison), file=stdout)
    if missing is not None:
        print(missing, file=stdout)
    if parsed.json is not None:
        torch = sys.modules.get("torch")
        gpu = None
        if torch is not None and torch.cuda.is_available():
            gpu = str(torch.cuda.get_device_name(0))
        machine = {"machine": description(), "gpu": gpu, "missing": missing}
        text = json.dumps(machine | comparison_data(comparison), indent=2) + "\n"
        try:
            parsed.json.write_text(text, encoding="utf-8")
        except OSError as error:
            reason = f"--json {parsed.json} cannot be written ({error.strerror})"
            print(f"FAILED: {reason}; name another file.", file=stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m engine_build.evaluation", description=__doc__, allow_abbrev=False
    )
    files = (("--network", "ONNX file", "fp32"), ("--plan", "TensorRT plan", "fp16"))
    for option, file, precision in files:
        text = f"{file}; NAME is its precision, {precision} unless given"
        parser.add_argument(option, action="append", default=[], metavar="[NAME=]FILE", help=text)
    source = "the source model of a text task, for PyTorch"
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help=source)
    tasks = TEXT_TASKS
    parser.add_argument("--task", default="text-embedding", choices=tasks)
    shapes = f"BATCHxSEQUENCE or BATCH, with commas; default {SHAPES}"
    parser.add_argument("--shapes", default=SHAPES, help=shapes)
    parser.add_argument("--seconds", type=_seconds, default=20.0, help="for everything together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go as JSON")
    return parser


def _artifacts(parsed: argparse.Namespace, shapes: Sequence[Shape]) -> Artifacts:
    source: Source | None = None
    if parsed.checkpoint is not None:
        from engine_build.sources.source_model import SourceModel

        longest = max(1 if shape.sequence is None else shape.sequence for shape in shapes)
        source = SourceModel(parsed.checkpoint, longest=longest, task=parsed.task)
    return Artifacts(
        networks=_files(parsed.network, "fp32"), plans=_files(parsed.plan, "fp16"), source=source
    )


def _files(texts: Sequence[str], default: str) -> dict[str, Path]:
    pairs = [text.rpartition("=") for text in texts]
    files = {name if equals else default: Path(file) for name, equals, file in pairs}
    if len(files) < len(texts):
        raise InputRefused(
            f"two of {', '.join(texts)} have one name; give each its own, as in int8=model.onnx."
        )
    return files


def _shape(text: str) -> Shape:
    sizes = text.split("x")
    if len(sizes) > 2 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise InputRefused(f"shape {text!r} is no BATCHxSEQUENCE, such as 8x64; each is 1 or more.")
    return Shape(batch=int(sizes[0]), sequence=int(sizes[1]) if len(sizes) == 2 else None)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, such as 20")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))

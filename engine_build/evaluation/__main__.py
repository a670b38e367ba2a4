"""`python -m engine_build.evaluation`: networks, plans and a checkpoint, side by side on whatever
runtimes a machine has.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from engine_build.datasets.feed import Shape
from engine_build.errors import BuildError, InputRefused
from engine_build.evaluation.comparison import as_data, as_text, compared, inputs_of
from engine_build.evaluation.runtimes import Offer, Runtime, Source, absences, contenders, runtimes
from engine_build.machine import description
from engine_build.options import Parser

SHAPES = "1x8,8x64,32x128"


def main(
    arguments: Sequence[str],
    stdout: TextIO,
    stderr: TextIO,
    *,
    here: Sequence[Runtime] | None = None,
) -> int:
    """0: measured; 1: what was given cannot run here."""
    found = runtimes() if here is None else here
    try:
        parsed = _parser().parse_args(arguments)
        shapes = tuple(_shape(text) for text in parsed.shapes.split(","))
        offer = _offer(parsed, shapes)
        comparison = compared(
            contenders(offer, found), inputs_of(offer), shapes, seconds=parsed.seconds
        )
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    missing = absences(found)
    print(as_text(comparison), file=stdout)
    if missing is not None:
        print(missing, file=stdout)
    if parsed.json is not None:
        data = {"machine": description(), "gpu": _gpu(), "missing": missing, **as_data(comparison)}
        try:
            parsed.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            print(
                f"FAILED: --json {parsed.json} cannot be written ({error.strerror}); name another file.",
                file=stderr,
            )
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m engine_build.evaluation", description=__doc__, allow_abbrev=False
    )
    for option, what in (
        ("--network", "ONNX file; NAME is its precision, fp32"),
        ("--plan", "TensorRT plan; NAME is its precision, fp16"),
    ):
        parser.add_argument(
            option, action="append", default=[], metavar="[NAME=]FILE", help=f"{what} unless given"
        )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="the source model of a text task, for PyTorch",
    )
    parser.add_argument(
        "--task", default="text-embedding", choices=("text-embedding", "text-classification")
    )
    parser.add_argument(
        "--shapes", default=SHAPES, help=f"BATCHxSEQUENCE or BATCH, with commas; default {SHAPES}"
    )
    parser.add_argument("--seconds", type=_seconds, default=20.0, help="for everything together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go as JSON")
    return parser


def _offer(parsed: argparse.Namespace, shapes: Sequence[Shape]) -> Offer:
    longest = max((shape.sequence for shape in shapes if shape.sequence is not None), default=1)
    return Offer(
        networks=_named(parsed.network, "fp32"),
        plans=_named(parsed.plan, "fp16"),
        source=None
        if parsed.checkpoint is None
        else _source(parsed.checkpoint, parsed.task, longest),
    )


def _source(folder: Path, task: Any, longest: int) -> Source:
    from engine_build.sources.source_model import SourceModel

    return SourceModel(folder, longest=longest, task=task)


def _named(texts: Sequence[str], otherwise: str) -> dict[str, Path]:
    pairs = [text.rpartition("=") for text in texts]
    found = {name if equals else otherwise: Path(file) for name, equals, file in pairs}
    if len(found) < len(texts):
        raise InputRefused(
            f"two of {', '.join(texts)} have one name; give each its own, as in int8=model.onnx."
        )
    return found


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


def _gpu() -> str | None:
    torch = sys.modules.get("torch")
    return (
        str(torch.cuda.get_device_name(0))
        if torch is not None and torch.cuda.is_available()
        else None
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))

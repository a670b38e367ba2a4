"""`python -m engine_build.lengths`: the counts and times of `roundhouse lengths`, by the builder.

`count` counts the tokens of a file of requests, `time` times an engine at given shapes. The last
line of standard output is JSON.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from engine_build.captures.bodies import Unreadable
from engine_build.datasets.text import TEXT_INPUTS, read_tokenizer
from engine_build.errors import BuildError, InputRefused
from engine_build.evaluation.runtimes import RuntimeName, close, load_engine
from engine_build.lengths.counts import Counts, TokenCounter
from engine_build.lengths.requests import RequestFile
from engine_build.lengths.timing import Timer
from engine_build.log import Log
from engine_build.options import Parser
from engine_build.packaging.engine_archive import read_engine_archive
from engine_build.store import sha256_of, store_at
from onboarding.manifest import MANIFEST_NAME, Manifest
from onboarding.names import ARCHIVE_NAME, engine_archive_path

ENGINE_FOLDER = "engine"


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """0: counted or timed; otherwise as in errors.py."""
    try:
        parsed = _parser().parse_args(arguments)
        log = Log(stderr)
        result = _count(parsed, log) if parsed.action == "count" else _time(parsed, log)
    except (BuildError, Unreadable) as error:
        print(f"FAILED: {error}", file=stderr)
        return getattr(error, "exit_code", 1)
    print(json.dumps(result), file=stdout)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m engine_build.lengths", description=__doc__, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    count = actions.add_parser("count", allow_abbrev=False)
    count.add_argument("--store", required=True, help="s3://BUCKET, or a folder like it")
    count.add_argument("--region", required=True)
    count.add_argument("--engine-key", required=True)
    count.add_argument("--sha256", required=True, help="of the archive, by the lock")
    count.add_argument("--requests", type=Path, required=True)
    count.add_argument("--splits", action="store_true", help="the server splits large requests")
    count.add_argument("--out", type=Path, required=True, help="folder of the engine, unpacked")
    timed = actions.add_parser("time", allow_abbrev=False)
    timed.add_argument("--out", type=Path, required=True, help="folder of the engine, unpacked")
    timed.add_argument("--plan", type=Path, required=True, help="JSON: shapes, replays, words")
    timed.add_argument("--seconds", type=float, required=True)
    return parser


def _count(parsed: argparse.Namespace, log: Log) -> dict[str, Any]:
    manifest = _unpack(parsed, log)
    sequences = [p.sequence for p in manifest.optimization_profiles if p.sequence is not None]
    tokenizer = manifest.tokenizer_file
    if tokenizer is None or not sequences or manifest.preprocessing is not None:
        raise InputRefused(
            f"{manifest.model} takes no texts that its archive's tokenizer reads, so nothing is "
            "padded: arrays and images keep their sizes; choose a text model."
        )
    counts = Counts(
        longest=max(sequence[2] for sequence in sequences),
        truncates=manifest.auto_truncate,
        most_rows=manifest.max_batch_size,
        splits=parsed.splits,
    )
    file = RequestFile(
        path=parsed.requests,
        task=manifest.task,
        prompts=manifest.prompts,
        progress=lambda share: log.progress(f"{share:.0%} of {parsed.requests.name} counted"),
    )
    counter = TokenCounter(read_tokenizer(parsed.out / ENGINE_FOLDER / tokenizer))
    for request, lengths in counter.count(file.requests()):
        counts.add(request, lengths)
    if not counts.requests:
        raise InputRefused(f"{parsed.requests} has no requests; give one on each line.")
    return {
        **counts.as_data(),
        "skipped": file.skipped,
        "words": counter.words,
        "sample": [
            {
                "lengths": part.lengths,
                "content_type": part.content_type,
                "body": None if part.body is None else base64.b64encode(part.body).decode(),
            }
            for part in counts.random_sample()
        ],
    }


def _unpack(parsed: argparse.Namespace, log: Log) -> Manifest:
    """Return the manifest of the archive that the lock names, unpacked into a folder."""
    folder, packed = parsed.out / ENGINE_FOLDER, parsed.out / ARCHIVE_NAME
    parsed.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    packed.unlink(missing_ok=True)
    name, store = engine_archive_path(parsed.engine_key), store_at(
        parsed.store, region=parsed.region
    )  # fmt: skip
    log.progress(f"fetching {store.place}/{name}")
    if not store.download(name, packed):
        raise InputRefused(
            f"{store.place}/{name} is not there; `roundhouse build` publishes the engine."
        )
    if sha256_of(packed) != parsed.sha256:
        raise InputRefused(
            f"{store.place}/{name} is not the archive that the lock names; build the engine again."
        )
    manifest = read_engine_archive(packed, folder).manifest
    packed.unlink()
    return manifest


def _time(parsed: argparse.Namespace, log: Log) -> dict[str, Any]:
    plan = json.loads(parsed.plan.read_text(encoding="utf-8"))
    folder = parsed.out / ENGINE_FOLDER
    manifest = Manifest.from_bytes((folder / MANIFEST_NAME).read_bytes())
    runtime: RuntimeName = "tensorrt" if manifest.runtime.name == "tensorrt" else "onnxruntime"
    engine = load_engine(runtime, folder / manifest.engine_file)
    try:
        inputs = getattr(engine, "inputs", TEXT_INPUTS)
        timer = Timer(engine, tuple(inputs), plan["words"], progress=log.progress)
        shapes = [(int(rows), int(tokens)) for rows, tokens in plan["shapes"]]
        replays = {
            name: [[(lengths, (rows, tokens)) for lengths, rows, tokens in runs] for runs in parts]
            for name, parts in plan["replays"].items()
        }
        return {
            "shapes": timer.shapes(shapes, parsed.seconds) if shapes else [],
            "replays": timer.replays(replays, parsed.seconds) if replays else {},
        }
    finally:
        close(engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))

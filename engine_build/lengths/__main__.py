"""A file of real texts, or of their lengths, as token counts.

`python -m engine_build.lengths`: a model's real text lengths, what padding them costs, and
profiles and buckets for them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from engine_build.errors import BuildError, InputRefused
from engine_build.lengths.proposal import as_data, as_text, proposal
from engine_build.log import Log
from engine_build.options import Parser
from engine_build.runner import ProcessRunner, Runner
from onboarding.deployment import Target
from onboarding.fault import FaultsError
from onboarding.manifest import BenchmarkRecord
from onboarding.resolve import target
from onboarding.tree import read_tree

AT_ONCE = 1024
TokenCounts = Callable[[Sequence[str]], Sequence[int]]


def token_counts(path: Path, counts: Callable[[], TokenCounts]) -> tuple[int, ...]:
    """Tokens of every line: the number it is when all are, or else what the tokenizer makes of it.

    Raises InputRefused.
    """
    try:
        lines = [
            line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(
            f"{path} cannot be read ({error}); give a UTF-8 file, one text or one length a line."
        ) from error
    if not lines:
        raise InputRefused(f"{path} is empty; give one text or one length a line.")
    if all(line.isascii() and line.isdigit() for line in lines):
        return _positive(path, [int(line) for line in lines])
    count = counts()
    return tuple(
        tokens
        for begin in range(0, len(lines), AT_ONCE)
        for tokens in count(lines[begin : begin + AT_ONCE])
    )


def _positive(path: Path, lengths: Sequence[int]) -> tuple[int, ...]:
    if min(lengths) < 1:
        raise InputRefused(f"{path} has a length of 0; a text has at least one token.")
    return tuple(lengths)


def main(
    arguments: Sequence[str], stdout: TextIO, stderr: TextIO, *, runner: Runner | None = None
) -> int:
    """0: proposed; otherwise as in errors.py."""
    run = ProcessRunner(Log(stderr)) if runner is None else runner
    try:
        parsed = _parser().parse_args(arguments)
        wanted, region = _target(parsed)
        with tempfile.TemporaryDirectory() as folder:
            lengths = token_counts(
                parsed.texts, lambda: _counts(parsed, wanted, region, Path(folder), run)
            )
        found = proposal(lengths, wanted.model.engine.optimization_profiles, parsed.buckets)
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    records = _records(wanted)
    text = (
        json.dumps(as_data(found, records), indent=2)
        if parsed.format == "json"
        else as_text(found, records)
    )
    print(text, file=stdout)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m engine_build.lengths", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(),
        help="onboarding root: models/, endpoints/, environments/",
    )
    parser.add_argument(
        "--environment", required=True, help="a file of environments/, without .yaml"
    )
    parser.add_argument("--model", required=True, help="a file of models/, without .yaml")
    parser.add_argument(
        "--texts",
        type=Path,
        required=True,
        help="real texts, one a line; or their lengths in tokens, one a line",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="tokenizer.json; default: the source's own, fetched",
    )
    parser.add_argument("--buckets", type=_count, default=4, help="most buckets; default 4")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="what stdout looks like"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give 1 or more")
    return int(text)


def _target(parsed: argparse.Namespace) -> tuple[Target, str]:
    try:
        deployment, wanted = target(read_tree(parsed.root), parsed.environment, parsed.model)
    except FaultsError as error:
        raise InputRefused(" ".join(map(str, error.faults))) from error
    return wanted, deployment.environment.region


def _counts(
    parsed: argparse.Namespace, wanted: Target, region: str, folder: Path, runner: Runner
) -> TokenCounts:
    """Token counts by the tokenizer, nothing padded and nothing cut."""
    from engine_build.datasets.text import read_tokenizer

    path = (
        parsed.tokenizer
        if parsed.tokenizer is not None
        else _tokenizer(parsed.root, wanted, region, folder, runner)
    )
    tokenizer = read_tokenizer(path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda texts: [
        len(encoding.ids) for encoding in tokenizer.encode_batch_fast(list(texts))
    ]


def _tokenizer(root: Path, wanted: Target, region: str, folder: Path, runner: Runner) -> Path:
    from engine_build.sources.source import FetchContext, fetch
    from engine_build.store import store_at

    fetching = FetchContext(
        root=root, folder=folder, runner=runner, bucket=partial(store_at, region=region)
    )
    source = fetch(wanted.model.source, fetching)
    path = source / "tokenizer.json" if source.is_dir() else source.with_name("tokenizer.json")
    if not path.is_file():
        raise InputRefused(
            f"the source of {wanted.model.name} has no tokenizer.json; give one with --tokenizer."
        )
    return path


def _records(wanted: Target) -> tuple[BenchmarkRecord, ...]:
    """What the lock says of the engine's own speed."""
    if wanted.lock_entry is None:
        return ()
    manifest = wanted.lock_entry.manifest
    engine = (manifest.runtime.name, manifest.precision)
    return tuple(item for item in manifest.benchmark if (item.runtime, item.precision) == engine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))

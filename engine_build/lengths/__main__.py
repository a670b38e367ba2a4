"""`python -m engine_build.lengths`: a model's real text lengths, and profiles and buckets for them.

It says what padding costs with the present profiles, and with those that it proposes.
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
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import FaultsError
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import ModelSpec
from onboarding.resolve import target
from onboarding.tree import read_tree

AT_ONCE = 1024
TOKENIZER = "tokenizer.json"
TokenCounts = Callable[[Sequence[str]], Sequence[int]]


def main(
    arguments: Sequence[str], stdout: TextIO, stderr: TextIO, *, runner: Runner | None = None
) -> int:
    """0: proposed; otherwise as in errors.py."""
    runner = ProcessRunner(Log(stderr)) if runner is None else runner
    try:
        parsed = _parser().parse_args(arguments)
        try:
            tree = read_tree(parsed.root)
            deployment, wanted = target(tree, parsed.environment, parsed.model)
        except FaultsError as error:
            raise InputRefused(" ".join(map(str, error.faults))) from error
        environment = deployment.environment
        with tempfile.TemporaryDirectory() as folder:
            counter = partial(_token_counter, parsed, wanted, environment, Path(folder), runner)
            lengths = token_counts(parsed.texts, counter)
        result = proposal(lengths, wanted.model.engine.optimization_profiles, parsed.buckets)
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    records = _records(wanted)
    if parsed.format == "json":
        print(json.dumps(as_data(result, records), indent=2), file=stdout)
    else:
        print(as_text(result, records), file=stdout)
    return 0


def token_counts(path: Path, counter: Callable[[], TokenCounts]) -> tuple[int, ...]:
    """Tokens of every line: the number it is when all are, or else what the tokenizer makes of it.

    Raises InputRefused.
    """
    try:
        lines = list(filter(None, map(str.strip, path.read_text(encoding="utf-8").splitlines())))
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(
            f"{path} cannot be read ({error}); give a UTF-8 file, one text or one length a line."
        ) from error
    if not lines:
        raise InputRefused(f"{path} is empty; give one text or one length a line.")
    if all(line.isascii() and line.isdigit() for line in lines):
        lengths = tuple(map(int, lines))
        if min(lengths) < 1:
            raise InputRefused(f"{path} has a length of 0; a text has at least one token.")
        return lengths
    count = counter()
    batches = (lines[begin : begin + AT_ONCE] for begin in range(0, len(lines), AT_ONCE))
    return tuple(tokens for batch in batches for tokens in count(batch))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m engine_build.lengths", description=__doc__, allow_abbrev=False)
    option = parser.add_argument
    root = "onboarding root: models/, endpoints/, environments/"
    option("--root", type=Path, default=Path(), help=root)
    option("--environment", required=True, help="a file of environments/, without .yaml")
    option("--model", required=True, help="a file of models/, without .yaml")
    texts = "real texts, one a line; or their lengths in tokens, one a line"
    option("--texts", type=Path, required=True, help=texts)
    tokenizer = "tokenizer.json; default: the source's own, fetched"
    option("--tokenizer", type=Path, metavar="FILE", help=tokenizer)
    prompt = "the prompt before every text; default: that of requests that name none"
    option("--prompt-name", metavar="NAME", help=prompt)
    option("--buckets", type=_count, default=4, help="most buckets; default 4")
    form = "what stdout looks like"
    option("--format", choices=("text", "json"), default="text", help=form)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give 1 or more")
    return int(text)


def _token_counter(
    parsed: argparse.Namespace,
    wanted: Target,
    environment: EnvironmentSpec,
    folder: Path,
    runner: Runner,
) -> TokenCounts:
    """Token counts by the tokenizer, of prompt and text; nothing padded and nothing cut."""
    from engine_build.datasets.text import read_tokenizer

    path, source = parsed.tokenizer, None
    if path is None:
        source = _fetch_source(parsed.root, wanted, environment, folder, runner)
        path = source / TOKENIZER if source.is_dir() else source.with_name(TOKENIZER)
        if not path.is_file():
            raise InputRefused(
                f"the source of {wanted.model.name} has no {TOKENIZER}; give one with --tokenizer."
            )
    # A checkpoint's prompts lie beside its tokenizer.
    prompt = _prompt(path.parent if source is None else source, wanted.model, parsed.prompt_name)
    tokenizer = read_tokenizer(path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda texts: [
        len(encoding.ids)
        for encoding in tokenizer.encode_batch_fast([prompt + text for text in texts])
    ]


def _prompt(source: Path, model: ModelSpec, name: str | None) -> str:
    """Return what stands before every text. Raises BuildError."""
    from engine_build.sources.prompts import served_prompts

    prompts = served_prompts(source, model)
    if name is not None and (prompts is None or name not in prompts.texts):
        known = [] if prompts is None else sorted(prompts.texts)
        raise InputRefused(
            f"--prompt-name is {name!r}, but the prompts of {model.name} are "
            f"{', '.join(known) or 'none'}; name one of them, or add it to `source.prompts` in "
            "the model file."
        )
    return "" if prompts is None else prompts.prefix(name)


def _fetch_source(
    root: Path, wanted: Target, environment: EnvironmentSpec, folder: Path, runner: Runner
) -> Path:
    from engine_build.sources.bucket_source import BucketAccess
    from engine_build.sources.private import PrivateSources, secret_reader
    from engine_build.sources.source import FetchContext, fetch
    from engine_build.store import store_at

    region = environment.region
    context = FetchContext(
        root=root,
        folder=folder,
        runner=runner,
        access=BucketAccess(bucket=partial(store_at, region=region)),
        private=PrivateSources(spec=environment.source_secrets, read=secret_reader(region)),
    )
    return fetch(wanted.model.source, context)


def _records(wanted: Target) -> tuple[BenchmarkRecord, ...]:
    """What the lock says of the engine's own speed."""
    if wanted.lock_entry is None:
        return ()
    manifest = wanted.lock_entry.manifest
    engine = (manifest.runtime.name, manifest.precision)
    return tuple(
        record for record in manifest.benchmark if (record.runtime, record.precision) == engine
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))

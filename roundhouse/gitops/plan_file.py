"""The file that `roundhouse plan --out` writes, read as what anybody may have written."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from roundhouse.errors import RoundhouseError
from roundhouse.gitops.plan_document import Plan

MOST_BYTES = 64 * 2**20
"""A plan of 500 changed endpoints has less than 10 MiB."""


def read_plan_file(path: Path) -> Plan:
    """Read a plan. Raises RoundhouseError for a file that is none."""
    write = f"`roundhouse plan --out {path}` writes one"
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RoundhouseError(f"{path}: cannot be read ({error.strerror}); {write}.") from error
    if len(text) > MOST_BYTES:
        raise RoundhouseError(f"{path}: is larger than {MOST_BYTES >> 20} MiB, which no plan is.")
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RoundhouseError(
            f"{path}: is no plan of this version ({where}: {first['msg']}); {write}."
        ) from error

"""The table of differences between the servers, generated from the exchanges of the suite.

`python -m tests.contract.differences`. `--write` puts it between the markers of
docs/serving.md; without it, a stale document is reported and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.contract.exchanges import TABLES
from tests.contract.replies import TITLES, Exchange

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


def table(name: str, exchanges: Sequence[Exchange], kinds: tuple[str, ...]) -> Iterable[str]:
    """What differs, one request a row; nothing where all servers reply alike."""
    rows = []
    for exchange in exchanges:
        if len({str(exchange.replies[kind]) for kind in exchange.kinds(kinds)}) > 1:
            cells = (str(exchange.replies.get(kind, "-")) for kind in kinds)
            rows.append(f"| {exchange.name} | {' | '.join(cells)} |")
    if rows:
        yield from ("", f"| {name} | {' | '.join(TITLES[kind] for kind in kinds)} |")
        yield from (f"|---{'|---' * len(kinds)}|", *rows)


SAGEMAKER_ONLY = ("Paths", "Loading")
"""Tables of requests that SageMaker makes and no client."""


def differences() -> str:
    """Every table of requests that clients make."""
    shown = (rows for rows in TABLES if rows[0] not in SAGEMAKER_ONLY)
    return "\n".join(line for rows in shown for line in table(*rows)).strip("\n")


START, END = "<!-- differences: generated -->\n", "<!-- differences: end -->"


def fill_in(document: str) -> str:
    """Return the document with the tables in their place.

    Raises ValueError when a marker is missing.
    """
    before, opening, rest = document.partition(START)
    _, closing, after = rest.partition(END)
    if not opening or not closing:
        raise ValueError(f"the document lacks the markers {START.strip()} and {END}")
    return f"{before}{START}{differences()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the document, or report that it is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.differences")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    present = DOCUMENT.read_text(encoding="utf-8")
    wanted = fill_in(present)
    if options.write:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif present != wanted:
        print(
            f"error: {DOCUMENT.name} is stale; write it with: python -m "
            "tests.contract.differences --write",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Draws an environment's dashboards.

`python -m roundhouse.reports.dashboards --env dev --out docs/images`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from onboarding.fault import FaultsError
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from roundhouse.reports.dashboards.pictures import Picture, pictures
from roundhouse.reports.dashboards.png import write_screenshot


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures; return exit code 1, and print why, when one cannot be made."""
    options = _parser().parse_args(arguments)
    try:
        for picture in _pictures(options):
            _write(picture, options.out, options.form)
    except (RoundhouseError, FaultsError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    prog = "python -m roundhouse.reports.dashboards"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    select = "the endpoint that the environment's dashboard shows; default: the first"
    own = "draw this endpoint's own dashboard, too"
    parser.add_argument("--env", required=True, help="the environment")
    parser.add_argument("--out", required=True, type=Path, help="folder of the pictures")
    parser.add_argument("--root", type=Path, help="the onboarding tree; default: the repository")
    parser.add_argument("--select", help=select)
    parser.add_argument("--endpoint", action="append", default=[], help=own)
    parser.add_argument(
        "--form", choices=("png", "html"), default="png", help="html needs no browser"
    )
    return parser


def _pictures(options: argparse.Namespace) -> list[Picture]:
    known = deployments(read_tree(find_paths(Path.cwd(), options.root).tree), options.env)
    if not known:
        raise RoundhouseError(
            f"--env {options.env}: deploys no endpoint, so there is nothing to draw; add a model."
        )
    names = [deployment.name for deployment in known]
    selected = names[0] if options.select is None else options.select
    for name in (selected, *options.endpoint):
        if name not in names:
            raise RoundhouseError(
                f"{name}: is no endpoint of environment {options.env}; allowed: {', '.join(names)}."
            )
    return pictures(known, selected, options.endpoint)


def _write(picture: Picture, folder: Path, form: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{picture.name}.{form}"
    if form == "html":
        target.write_text(picture.html, encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as name:
            html = Path(name) / "page.html"
            html.write_text(picture.html, encoding="utf-8")
            write_screenshot(Processes(), html, target, picture.size, picture.digest)
    print(target)


if __name__ == "__main__":
    raise SystemExit(main())

"""`roundhouse status MODEL --card`: one page about an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_build.card.page import PrecisionRow
    from onboarding.deployment import Target
    from roundhouse.paths import Paths
    from roundhouse.report import Report
    from roundhouse.session import Session


def show_card(paths: Paths, report: Report, env: str, model: str) -> None:
    """Write one HTML page about an engine, and print its precisions.

    The page has accuracy, latency, which layers are INT8, how to reproduce it; its table of
    precisions lies beside it as Markdown. Raises RoundhouseError, of a text generator too.
    """
    from engine_build.card.page import PRECISION_COLUMNS
    from roundhouse.errors import RoundhouseError
    from roundhouse.measure.subject import is_generator
    from roundhouse.paths import displayed_path
    from roundhouse.session import open_session
    from roundhouse.table import table

    if is_generator(paths, model):
        raise RoundhouseError(
            f"{model}: is a text generator, and engines alone have a card; `roundhouse status "
            f"--env {env}` shows its checkpoints, and its lock has the numbers of their gates."
        )
    page = fetch_card(open_session(paths, report, env), model, paths.build / "cards")
    data = displayed_path(page.with_suffix(".json"))
    rows = write_precisions(page)
    if rows:
        columns = [head for head, _, _ in PRECISION_COLUMNS]
        right = [head for head, kind, _ in PRECISION_COLUMNS if kind == "number"]
        cells = ([str(cell(row)) for _, _, cell in PRECISION_COLUMNS] for row in rows)
        report.print_table(table(columns, cells, right=right))
    report.print(f"{displayed_path(page)}: open it in a browser; its numbers are in {data}.")


def write_precisions(page: Path) -> tuple[PrecisionRow, ...]:
    """Write the table of precisions beside a fetched page and return its rows.

    Older cards have none.
    """
    import json

    from engine_build.card.page import PrecisionRow, precisions_markdown

    document = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    rows = tuple(PrecisionRow(**row) for row in document.get("precisions", ()))
    if rows:
        page.with_suffix(".md").write_text(precisions_markdown(rows), encoding="utf-8")
    return rows


def fetch_card(session: Session, model: str, folder: Path) -> Path:
    """Write card.html of a model's engine, and card.json beside it; return the page.

    Raises RoundhouseError.
    """
    from onboarding.names import artifact_bucket, engine_card_data_path, engine_card_path
    from roundhouse.aws.clients import object_bytes
    from roundhouse.errors import RoundhouseError

    target = _target(session, model)
    bucket, environment = artifact_bucket(session.environment), session.environment.name
    page = folder / f"{environment}-{model}.html"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in (
        (engine_card_path(target.engine_key), page),
        (engine_card_data_path(target.engine_key), page.with_suffix(".json")),
    ):
        data = object_bytes(session.clients("s3"), bucket, name)
        if data is None:
            build = f"`roundhouse build --env {environment} --model {model}`"
            raise RoundhouseError(
                f"{model}: s3://{bucket}/{name} is not there; {build} builds the engine and "
                "its card."
            )
        path.write_bytes(data)
    return page


def _target(session: Session, model: str) -> Target:
    from roundhouse.errors import RoundhouseError
    from roundhouse.text import choices

    targets = {
        target.model.name: target
        for deployment in session.deployments()
        for target in deployment.built_targets
    }
    if model not in targets:
        known = choices(model, sorted(targets))
        raise RoundhouseError(
            f"{model!r}: no such model in environment {session.environment.name}; {known}"
        )
    return targets[model]

"""`roundhouse compare`: candidates of one model side by side, by SLO, price and accuracy."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Input, Root, RowsPerRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roundhouse.measure.compare.cells import Cell
    from roundhouse.measure.compare.result import Report as CompareReport
    from roundhouse.measure.compare.run import Run
    from roundhouse.measure.compare.tree import Subject
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = (
    "roundhouse compare sentence-embedder --env dev --axes precision,batching --demand 30000/min"
)
SLO_MISSED = 6


def compare(
    model: Annotated[str, typer.Argument(help="A model of the environment.")],
    env: Env,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            help="What varies, with commas: runtime, precision, batching, instances, "
            "instance_type; or one with its values: precision=fp16,int8; repeatable. "
            "Default: precision,batching,instances."
        ),
    ] = None,
    demand: Annotated[
        str | None,
        typer.Option(
            help="Requests to size for: 30000/min, or 500 (a second).",
        ),
    ] = None,
    slo: Annotated[
        float | None,
        typer.Option(min=0.001, help="p99 to hold, in ms; default: the model's latency_slo_ms."),
    ] = None,
    input: Input = None,
    rows: RowsPerRequest = 1,
    at_once: Annotated[
        int, typer.Option(min=1, max=64, help="Most endpoints deployed at the same time.")
    ] = 12,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show cells, builds and cost.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Only delete the endpoints of a killed run.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Compare candidates by SLO and price.

    Builds what is missing, deploys each candidate as an endpoint of one instance, loads it, and
    deletes it. Exit code 6: none holds the SLO.
    """
    from roundhouse.errors import UsageError
    from roundhouse.measure.compare.cost import report_of
    from roundhouse.measure.compare.result import parse_demand
    from roundhouse.measure.compare.run import (
        CompareOptions,
        delete_endpoints,
        open_run,
        run_comparison,
    )
    from roundhouse.measure.compare.tree import require_slo, subject
    from roundhouse.measure.subject import is_generator
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import open_session, valid_tree
    from roundhouse.text import quantity

    paths, report = current_paths(root), open_report(form)
    if is_generator(paths, model):
        raise UsageError(
            f"{model}: is a text generator, whose candidates `roundhouse plan --env {env}` sizes "
            f"and prices; `roundhouse bench {model} --env {env}` measures the one that runs."
        )
    found = subject(valid_tree(paths), env, model)
    if clean:
        deleted = delete_endpoints(open_session(paths, report, env), found)
        report.print(f"{quantity(deleted, 'endpoint')} of candidates deleted.")
        return
    grid = _grid(axes or (), found)
    rate = None if demand is None else parse_demand(demand)
    options = CompareOptions(
        slo_ms=require_slo(found, slo),
        at_once=at_once,
        input=input,
        rows_per_request=rows,
    )
    run = open_run(paths, report, found, options)
    if dry_run:
        _show_cost(run, grid, form)
        return
    cells = run_comparison(run, grid)
    result = report_of(run, cells, rate, shlex.join(["roundhouse", *sys.argv[1:]]))
    show(paths, report, result, form)
    if result.best is None:
        raise typer.Exit(SLO_MISSED)


def _grid(axes: Sequence[str], found: Subject) -> tuple[Cell, ...]:
    from roundhouse.measure.compare.cells import DEFAULT_AXES, cells, parse_axes
    from roundhouse.measure.compare.tree import require_instance_types

    has_calibration = found.spec.engine.calibration is not None
    chosen = parse_axes(
        axes or (DEFAULT_AXES,), is_gpu=found.is_gpu, has_calibration=has_calibration
    )
    require_instance_types(found, chosen.get("instance_type", ()))
    return cells(chosen)


def show(paths: Paths, report: Report, result: CompareReport, form: Format) -> None:
    """Write a comparison's report.md and report.json, and print it."""
    import json

    import yaml

    from roundhouse.measure.compare.cells import overrides
    from roundhouse.measure.compare.result import (
        document,
        markdown,
        reasons,
        sizing_sentence,
        table_of,
    )
    from roundhouse.paths import displayed_path, output_folder
    from roundhouse.report import print_json

    folder = paths.build / "compare" / result.environment / result.model
    written = document(result)
    with output_folder(folder):
        (folder / "report.md").write_text(markdown(result), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    if form is Format.json:
        print_json(written)
        return
    if result.best is None:
        report.print(result.headline)
    report.print_table(table_of(result))
    for name, reason in reasons(result):
        report.print(f"  {name}: {reason}")
    if result.best is not None:
        report.print(result.headline)
        report.print(sizing_sentence(result))
        chosen = overrides(dict(result.best.values))
        block = yaml.safe_dump(chosen, sort_keys=False).rstrip()
        report.print(f"Into models/{result.model}.yaml (null: leave the key out):\n{block}")
    report.print(f"The report: {displayed_path(folder / 'report.md')}, report.json.")


def _show_cost(run: Run, grid: tuple[Cell, ...], form: Format) -> None:
    import dataclasses

    from roundhouse.measure.compare.cost import (
        COLUMNS,
        cell_costs,
        predictions_of,
        total_sentence,
    )
    from roundhouse.measure.compare.run import require_possible
    from roundhouse.report import print_json
    from roundhouse.table import table

    costs = cell_costs(run, grid)
    require_possible(run, grid)
    if form is Format.json:
        print_json(
            [
                dataclasses.asdict(cost)
                | {"predictions": [item.model_dump() for item in cost.predictions]}
                for cost in costs
            ]
        )
        return
    run.report.print_table(table(COLUMNS, (cost.cells() for cost in costs), right=COLUMNS[2:]))
    run.report.print(total_sentence(costs))
    if (found := predictions_of(costs)) is not None:
        predictions, errors = found
        run.report.print_table(predictions)
        run.report.print(errors)

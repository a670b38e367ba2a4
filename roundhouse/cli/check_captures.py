"""`roundhouse check-captures`: what users send and get, against the data and the source model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from roundhouse.session import Session

EXAMPLE = "roundhouse check-captures sentence-embedder --env prod --hours 48"
MODULE = "engine_build.captures"


def check_captures(
    endpoint: Annotated[
        str, typer.Argument(help="Endpoint: a file in models/ or endpoints/, without .yaml.")
    ],
    env: Env,
    hours: Annotated[
        int, typer.Option("--hours", min=1, max=720, help="Hours back from now.")
    ] = 24,
    sample: Annotated[
        int, typer.Option("--sample", min=1, help="Rows that are asked of the source model again.")
    ] = 200,
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish metrics, and reports to the bucket.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Compare captures with the source model.

    Captured inputs are compared with the calibration data, and a random sample of the captured
    answers with those of the source model, by the accuracy metric and budget of the model file.
    Fewer than 100 rows judge nothing. Exit code 2 when accuracy is below its budget, or the inputs
    have drifted.
    """
    from roundhouse.errors import DriftError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    report = open_report(form)
    session = open_session(current_paths(root), report, env, endpoints=(endpoint,))
    with report.step("Comparing captures with data and source model") as step:
        arguments = ["--hours", str(hours), "--sample", str(sample)]
        found = compare(session, endpoint, [*arguments, *(["--publish"] if publish else [])])
        step.finish(f"{sum(item['rows'] for item in found)} rows")
    if form is Format.json:
        print_json(found)
    else:
        folder = session.paths.build / "captures"
        report.print("\n\n".join(map(format_report, found)))
        report.print(f"\nWhole reports are in {folder}.")
    wrong = [fault for item in found for fault in faults(item)]
    if wrong:
        raise DriftError(
            f"{endpoint} of {env}: {'; '.join(wrong)}. Add such inputs to the datasets and build "
            "again, or roll back."
        )


def compare(session: Session, endpoint: str, arguments: list[str]) -> list[dict[str, Any]]:
    """Return the report of each variant. Raises RoundhouseError."""
    import json

    from onboarding.names import artifact_bucket
    from roundhouse.errors import NotReadyError, RoundhouseError
    from roundhouse.processes import Command

    paths, environment = session.paths, session.environment
    python = paths.venv_python("builder")
    if not python.is_file():
        raise NotReadyError(f"{python}: is not there; `make setup` makes it.")
    argv = (str(python), "-m", MODULE, "--root", str(paths.tree), "--endpoint", endpoint)
    place = ("--store", f"s3://{artifact_bucket(environment)}", "--out", f"{paths.build}/captures")
    outcome = session.run(
        Command(
            argv=(*argv, "--environment", environment.name, *place, "--format", "json", *arguments),
            folder=paths.code,
            environment=session.variables,
        )
    )
    last = next((line for line in reversed(outcome.output.splitlines()) if line.strip()), "")
    if outcome.code != 0:
        raise RoundhouseError(last.removeprefix("FAILED: ") or f"{MODULE} ended without a word.")
    found: list[dict[str, Any]] = json.loads(last)
    return found


def format_report(report: dict[str, Any]) -> str:
    """Return one variant's report in a few lines."""
    accuracy, inputs = report["accuracy"], report["inputs"]
    record = accuracy["record"]
    scores = (
        ""
        if record is None
        else f", mean {record['metric']} {record['mean']:.5f}"
        + (f" of {record['samples']} rows, budget {record['budget_mean']:g}")
    )
    lines = [
        f"{report['endpoint']}, {report['variant']}: {report['requests']} requests, "
        f"{report['rows']} rows",
        f"  accuracy: {accuracy['verdict']}{scores}",
    ]
    if not inputs["enough_data"]:
        lines.append("  inputs: not enough data")
    for item in inputs["distances"] if inputs["enough_data"] else ():
        drifted = ", drifted" if item["has_drifted"] else ""
        lines.append(
            f"  {item['name']}: index {item['index']:.3f}, chance alone {item['noise']:.3f}"
            f"{drifted}"
        )
    for what, counts in (
        ("not read", report["unread"]),
        ("not compared", accuracy["not_compared"]),
    ):
        lines += [f"  {count} {what}: {reason}" for reason, count in sorted(counts.items())]
    return "\n".join(lines)


def faults(report: dict[str, Any]) -> list[str]:
    """Return what is wrong by one variant's report."""
    variant, inputs = report["variant"], report["inputs"]
    found = []
    if report["accuracy"]["verdict"] == "fail":
        found.append(f"{variant} answers below the accuracy budget")
    if inputs["enough_data"]:
        found += [
            f"{item['name']} of {variant} has drifted"
            for item in inputs["distances"]
            if item["has_drifted"]
        ]
    return found

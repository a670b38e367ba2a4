"""`roundhouse recommend`: SageMaker Inference Recommender, beside our own measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Input, Root, RowsPerRequest

if TYPE_CHECKING:
    from roundhouse.paths import Paths
    from roundhouse.recommendation.comparison import ComparedJob
    from roundhouse.recommendation.options import RecommendOptions
    from roundhouse.recommendation.request import JobRequest
    from roundhouse.recommendation.subject import Subject
    from roundhouse.report import Report
    from roundhouse.session import Session

EXAMPLE = "roundhouse recommend sentence-embedder --env dev --advanced --instance-type ml.g5.xlarge"
SLO_MISSED = 6


def recommend(
    model: Annotated[str, typer.Argument(help="A model of the environment.")],
    env: Env,
    advanced: Annotated[
        bool,
        typer.Option(
            "--advanced/--default",
            help="A load test of your own traffic, or SageMaker's (45 minutes).",
        ),
    ] = False,
    instance_type: Annotated[
        str | None,
        typer.Option(help="Instance types, with commas; default: the model file's, or all."),
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            help="Users, users more a minute, and seconds: start=2,spawn=2,seconds=1500 (the "
            "default); repeatable."
        ),
    ] = None,
    stairs: Annotated[
        str | None, typer.Option(help="Instead of phases: users=2,steps=5,seconds=600.")
    ] = None,
    stop_at: Annotated[
        str | None, typer.Option("--stop-at", help="p95=MS at which a load ends; default: the SLO.")
    ] = None,
    max_invocations: Annotated[
        int | None, typer.Option(help="Requests a minute at which a load ends.")
    ] = None,
    continue_when_flat: Annotated[
        bool,
        typer.Option("--continue-when-flat", help="Go on when more users bring no more answers."),
    ] = False,
    variable: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=a,b: values of a container's environment variable to try; repeatable."
        ),
    ] = None,
    max_tests: Annotated[
        int | None, typer.Option(min=1, help="Most benchmarks of the job.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Benchmarks at the same time.")] = 1,
    job_seconds: Annotated[
        int | None, typer.Option(help="Longest job, in seconds; default: what its loads need.")
    ] = None,
    demand: Annotated[
        str | None, typer.Option(help="Requests to size scaling for, such as 30000/min.")
    ] = None,
    input: Input = None,
    rows: RowsPerRequest = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Start another job where one is completed.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Only stop the model's running jobs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the requests and the cost.")
    ] = False,
    import_file: Annotated[
        Path | None,
        typer.Option(
            "--import",
            exists=True,
            dir_okay=False,
            help="Text generator: check what describe-ai-recommendation-job answered, as JSON.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the report; default: build/recommend.")
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Run SageMaker Inference Recommender.

    Serves the model's engine on instance types, loads it, and shows the job beside our own
    measurements. A job goes on after Ctrl-C; the same command follows it. Of a text generator:
    --import checks a job's recommendations by our rules. Exit code 6: nothing is within the SLO.
    """
    from roundhouse.compare.sizing import parse_demand
    from roundhouse.paths import current_paths
    from roundhouse.recommendation.options import (
        RecommendOptions,
        parse_parameters,
        parse_stairs,
        parse_stop,
        parse_user_phase,
    )
    from roundhouse.recommendation.run import prepare_job, run_job
    from roundhouse.report import open_report
    from roundhouse.session import open_session

    if import_file is not None:
        _show_imported(current_paths(root), open_report(form), env, model, import_file, form)
        return
    options = RecommendOptions(
        job_type="Advanced" if advanced else "Default",
        instance_types=_words(instance_type),
        phases=tuple(map(parse_user_phase, phase or ())),
        stairs=None if stairs is None else parse_stairs(stairs),
        max_invocations=max_invocations,
        latency_ms=None if stop_at is None else parse_stop(stop_at),
        stops_when_flat=not continue_when_flat,
        max_tests=max_tests,
        parallel=parallel,
        parameters=parse_parameters(variable or ()),
        job_seconds=job_seconds,
        rows=rows,
    )
    rate = None if demand is None else parse_demand(demand)
    session = open_session(current_paths(root), open_report(form), env)
    if stop:
        _stop(session, model, form)
        return
    subject, request = prepare_job(session, model, options, input)
    if dry_run:
        _show_requests(session.report, subject, options, request, form)
        return
    job = run_job(session, subject, request, demand=rate, again=again)
    _show(session, job, output, form)
    if job.slo_ms is not None and not any(row.holds_slo for row in job.rows):
        raise typer.Exit(SLO_MISSED)


def _show_imported(
    paths: Paths, report: Report, env: str, model: str, file: Path, form: Format
) -> None:
    from roundhouse.load_test.generation.subject import generator_spec
    from roundhouse.recommendation.generation import plan_document, read_job, recommended_plans
    from roundhouse.report import print_json, table
    from roundhouse.reports.recommended_plans import COLUMNS, RIGHT, cells_of, lines
    from roundhouse.session import valid_tree

    generator_spec(paths, model, env)
    plans = recommended_plans(valid_tree(paths), env, model, read_job(file))
    if form is Format.json:
        print_json([plan_document(plan) for plan in plans])
    else:
        report.print_table(table(COLUMNS, map(cells_of, plans), right=RIGHT))
        for line in lines(plans):
            report.print(line)
    if not any(plan.holds for plan in plans):
        raise typer.Exit(SLO_MISSED)


def _words(text: str | None) -> tuple[str, ...]:
    words = (text or "").split(",")
    return tuple(dict.fromkeys(word.strip() for word in words if word.strip()))


def _stop(session: Session, model: str, form: Format) -> None:
    from roundhouse.errors import RoundhouseError
    from roundhouse.recommendation.job import stop_jobs
    from roundhouse.report import print_json

    stopped = stop_jobs(session, model)
    if form is Format.json:
        print_json({"stopped": list(stopped)})
    elif not stopped:
        raise RoundhouseError(f"{model}: no recommendation job of it is under way.")
    for name in stopped:
        session.report.print(f"Stopping {name}.")


def _show_requests(
    report: Report, subject: Subject, options: RecommendOptions, request: JobRequest, form: Format
) -> None:
    import json

    from onboarding.prices import price
    from roundhouse.recommendation.options import DEFAULT_JOB_SECONDS, START_UP_SECONDS
    from roundhouse.recommendation.request import most_usd
    from roundhouse.report import print_json

    region = subject.deployment.environment.region
    prices = [price(region, "hosting", name) for name in subject.instance_types]
    seconds = options.traffic_seconds + START_UP_SECONDS
    if options.job_type == "Default":
        seconds = DEFAULT_JOB_SECONDS
    usd = most_usd(prices, len(options.combinations()), seconds)
    shown = {
        "create_model": request.model_parameters(1),
        "create_inference_recommendations_job": request.job_parameters(1),
        "most_usd": usd,
    }
    if form is Format.json:
        print_json(shown)
        return
    for note in subject.notes:
        report.print(f"– {note}")
    report.print(json.dumps(shown, indent=2))
    cost = "what is not known: a price is missing" if usd is None else f"at most {usd:,.2f} USD"
    report.print(f"Nothing was asked of AWS. The job's instances cost {cost}.")


def _show(session: Session, job: ComparedJob, output: Path | None, form: Format) -> None:
    import json

    from roundhouse.paths import displayed_path, output_folder
    from roundhouse.report import print_json, table
    from roundhouse.reports.recommendation_report import (
        COLUMNS,
        EXPLANATION,
        RIGHT,
        SCALING_COLUMNS,
        SCALING_RIGHT,
        cells_of,
        document,
        markdown,
        notes,
        scaling_cells,
    )

    report, written = session.report, document(job)
    default = session.paths.build / "recommend" / session.environment.name / job.model
    folder = default if output is None else output
    with output_folder(folder):
        (folder / "report.md").write_text(markdown(job), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    if form is Format.json:
        print_json(written)
        return
    report.print_table(table(COLUMNS, map(cells_of, job.rows), right=RIGHT))
    scaling = list(scaling_cells(job))
    if scaling:
        report.print_table(table(SCALING_COLUMNS, scaling, right=SCALING_RIGHT))
    for note in notes(job):
        report.print(f"  {note}")
    report.print(EXPLANATION)
    report.print(job.headline)
    report.print(f"The report: {displayed_path(folder / 'report.md')}, report.json.")

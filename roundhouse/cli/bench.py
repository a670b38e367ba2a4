"""`roundhouse bench`: its options, what it prints, and its exit code."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from roundhouse.cli.options import Form, Format, Input, Root
from roundhouse.load_test.options import Arrivals, LoadOptions
from roundhouse.paths import Paths
from roundhouse.report import Report

EXAMPLE = "roundhouse bench sentence-embedder --env local"
INTERRUPTED = 130
SLO_MISSED = 6
WORKERS = (
    "--workers: one process sends the load; where its own lateness or CPU is the limit, the report "
    "says so: leave --workers out, and load from several machines, each with a part of the --rate."
)


def bench(
    endpoint: Annotated[
        str | None, typer.Argument(help="Endpoint: the model's name, or the shared endpoint's.")
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment of the endpoint.")] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Load a server without SageMaker: http://HOST:PORT/invocations."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Which model of a shared endpoint; with --url: whose inputs and SLO."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Open loop: requests a second, whatever the answers do."),
    ] = None,
    closed_loop: Annotated[
        bool, typer.Option("--closed-loop", help="Users who each wait for an answer and ask again.")
    ] = False,
    users: Annotated[
        int | None, typer.Option(min=1, help="Closed loop: users at its start; default: 8.")
    ] = None,
    spawn: Annotated[
        float | None,
        typer.Option(min=0, help="Users, or requests a second, that are added each minute."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="How long; default: 30.")] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(help="start=N,spawn=N,seconds=N; repeat it for several phases."),
    ] = None,
    slo: Annotated[
        float | None,
        typer.Option(min=0.001, help="p99 to hold, in ms; default: the model's latency_slo_ms."),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(help="End when the newest answers' percentile is above a limit: p99=200."),
    ] = None,
    max_requests: Annotated[
        int | None, typer.Option(min=1, help="End after so many answers.")
    ] = None,
    first_rate: Annotated[
        float | None,
        typer.Option(min=0.2, help="Where the search begins; default: by a short probe."),
    ] = None,
    step_seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Length of the search's steps, longer where its percentile needs it; default: "
            "10, of text 20.",
        ),
    ] = None,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before, not counted.")] = 3,
    input: Input = None,
    texts_per_request: Annotated[
        int,
        typer.Option("--texts-per-request", "--rows", min=1, help="Texts, or rows, of a request."),
    ] = 1,
    binary: Annotated[
        bool | None,
        typer.Option("--binary/--json", help="Tensors as bytes or JSON; default: JSON for texts."),
    ] = None,
    arrivals: Annotated[
        Arrivals, typer.Option(help="How an open loop's requests follow each other.")
    ] = Arrivals.poisson,
    workers: Annotated[int | None, typer.Option(hidden=True)] = None,
    connections: Annotated[
        int | None, typer.Option(min=1, help="Most connections; default: 512.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Seconds after which an answer is given up; default: 60, of text 480."
        ),
    ] = None,
    expected_interval: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Closed loop: ms between a user's requests if answers came at once."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of arrivals and of the order of inputs.")] = 1,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the report; default: build/load.")
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            "--write",
            help="Hold the rate found, and write it into the model's lock.",
        ),
    ] = False,
    concurrency: Annotated[
        str | None,
        typer.Option(help="Text generator: requests at once, a phase for each: 1,4,16."),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Text generator: requests of each phase.")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Text generator: tokens as PROMPT:OUTPUT, or chat, rag, agents, long; default: "
            "log-normal, by the model file's context."
        ),
    ] = None,
    ttft: Annotated[
        float | None,
        typer.Option(min=0.1, help="Text generator: p95 to the first token to hold, in ms."),
    ] = None,
    itl: Annotated[
        float | None,
        typer.Option(min=0.1, help="Text generator: p95 between two tokens to hold, in ms."),
    ] = None,
    openai: Annotated[
        bool,
        typer.Option("--openai", help="Text generator: by the endpoint's OpenAI path."),
    ] = False,
    export_workload: Annotated[
        Path | None,
        typer.Option(help="Text generator: only write an AIWorkloadConfig of SageMaker."),
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Load an endpoint or a server.

    By default: finds the highest rate that holds the SLO. Leaves a report as HTML and JSON. Exit
    code 6 says that the SLO was missed.
    """
    # Not Typer's own parameters: in some of its versions paths and choices are strings there.
    parameters = locals()
    from roundhouse.errors import RoundhouseError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    if workers is not None:
        raise RoundhouseError(WORKERS)
    paths, report = current_paths(root), open_report(form)
    given = {
        name: value
        for name, value in parameters.items()
        if name not in OTHER_PARAMETERS and value is not None
    }
    given |= {"phase": tuple(phase or ()), "command": shlex.join(["roundhouse", *sys.argv[1:]])}
    if _is_generation(paths, given):
        raise typer.Exit(_load_generator(paths, report, given, form))
    for name in GENERATION_PARAMETERS & given.keys():
        if given.pop(name):
            flag = name.replace("_", "-")
            raise RoundhouseError(
                f"--{flag}: belongs to a text generator; name one, or with --url the path of its "
                "completions (/v1/chat/completions)."
            )
    raise typer.Exit(load(paths, report, LoadOptions(**given), form))


OTHER_PARAMETERS = {"workers", "root", "form"}
"""Parameters that are no options of a load test."""
GENERATION_PARAMETERS = {
    "concurrency", "requests", "lengths", "ttft", "itl", "openai", "export_workload",
}  # fmt: skip


def _is_generation(paths: Paths, given: dict[str, Any]) -> bool:
    """Return whether text is generated: by the model file, or else by the URL's path."""
    from roundhouse.load_test.generation.subject import is_generator

    name = given.get("model") if "url" in given else given.get("endpoint")
    if name is not None and is_generator(paths, name):
        return True
    return str(given.get("url", "")).rstrip("/").endswith("/completions")


def _load_generator(paths: Paths, report: Report, given: dict[str, Any], form: Format) -> int:
    """Run the load test of a text generator, print its result; return the exit code."""
    from roundhouse.load_test.generation.bench import run_generation_bench
    from roundhouse.load_test.generation.options import generation_options
    from roundhouse.load_test.generation.recording import record
    from roundhouse.load_test.generation.result import generation_document, generation_table
    from roundhouse.load_test.generation.workload_config import export_workload
    from roundhouse.report import print_json
    from roundhouse.reports.generation_report import generation_page
    from roundhouse.session import open_session

    file = given.pop("export_workload", None)
    options = generation_options(given)
    options.require_consistent()
    if file is not None:
        report.print(export_workload(paths, options, file))
        return 0
    run, recorded = partial(run_generation_bench, render=generation_page), None
    if options.record:
        recorded = record(open_session(paths, report, str(options.env)), options, run=run)
    done = run(paths, report, options) if recorded is None else recorded.report
    result = done.result
    if form is Format.json:
        document = generation_document(result)
        document["files"] = {"html": str(done.page), "json": str(done.data)}
        if recorded is not None:
            document["recorded"] = recorded.knee.model_dump(mode="json")
            document["lock"] = str(recorded.lock)
        print_json(document)
    else:
        report.print_table(generation_table(result))
        report.print(result.headline)
        report.print(f"The report: {done.page}; its numbers: {done.data}.")
        if recorded is not None:
            report.print(f"{recorded.summary} Written to {recorded.lock}: review and commit it.")
    return INTERRUPTED if result.broken_off else SLO_MISSED if result.slo_missed else 0


def load(paths: Paths, report: Report, options: LoadOptions, form: Format) -> int:
    """Run a load test, record it if wanted, print its result; return the exit code."""
    from roundhouse.load_test.bench import load_table, run_bench
    from roundhouse.load_test.document import load_document
    from roundhouse.load_test.recording import record
    from roundhouse.report import print_json
    from roundhouse.reports.load_report import load_page
    from roundhouse.session import open_session

    options.require_consistent()
    run = partial(run_bench, render=load_page)
    recorded = None
    if options.record:
        recorded = record(open_session(paths, report, str(options.env)), options, run=run)
    done = run(paths, report, options) if recorded is None else recorded.load_report
    result = done.result
    if form is Format.json:
        document = {
            **load_document(result),
            "files": {"html": str(done.page), "json": str(done.data)},
        }
        if recorded is not None:
            document["recorded"] = recorded.capacity.model_dump(mode="json")
            document["lock"] = str(recorded.lock)
        print_json(document)
    else:
        report.print_table(load_table(result))
        report.print(result.headline)
        report.print(f"The report: {done.page}; its numbers: {done.data}.")
        if recorded is not None:
            report.print(f"{recorded.summary} Written to {recorded.lock}: review and commit it.")
    return INTERRUPTED if result.broken_off else SLO_MISSED if result.slo_missed else 0

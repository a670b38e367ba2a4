"""`roundhouse bench`: its options, what it prints, and its exit code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from roundhouse.cli.options import Form, Format, Root, RowsPerRequest

EXAMPLE = "roundhouse bench sentence-embedder --env local"
INTERRUPTED = 130
SLO_MISSED = 6


def bench(
    endpoint: Annotated[
        str | None, typer.Argument(help="Endpoint: the model's name, or the shared endpoint's.")
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment of the endpoint.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Load a server without SageMaker: http://HOST:PORT/invocations; of a text "
            "generator /v1/chat/completions."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Which model of a shared endpoint; with --url: whose inputs and SLO."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Open loop: requests a second, whatever the answers do."),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            help="Closed loop: users who each wait for an answer and ask again; 1,4,16: one after "
            "the other."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="How long: of a load 30, of the search for the highest load at most 180."
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            help="To hold, in ms: p99, of a text generator p95 to the first token and between "
            "tokens, 300:60; default: the model file's."
        ),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            help="What is sent: .txt, .tsv or .npz; to a text generator tokens as PROMPT:OUTPUT. "
            "Default: by the model file."
        ),
    ] = None,
    rows: RowsPerRequest = 1,
    record: Annotated[
        bool,
        typer.Option("--record", help="Hold the load found, and write it into the model's lock."),
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Load an endpoint or a server.

    By default: finds the highest load that holds the SLO, in three minutes. Leaves its numbers as
    JSON. Exit code 6 says that the SLO was missed.
    """
    from roundhouse.measure.bench import run_bench
    from roundhouse.measure.options import LoadOptions
    from roundhouse.measure.recording import record_load
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    paths, report = current_paths(root), open_report(form)
    options = LoadOptions(
        endpoint=endpoint,
        env=env,
        url=url,
        model=model,
        rate=rate,
        users=users,
        seconds=seconds,
        slo=slo,
        input=input,
        rows=rows,
        record=record,
        command=shlex.join(["roundhouse", *sys.argv[1:]]),
    )
    options.require_consistent()
    recorded = None
    if record:
        recorded = record_load(open_session(paths, report, str(env)), options, run=run_bench)
    done = run_bench(paths, report, options) if recorded is None else recorded.report
    result = done.result
    if form is Format.json:
        document = result.document()
        document["file"] = str(done.file)
        if recorded is not None:
            document["recorded"] = recorded.entry.model_dump(mode="json")
            document["lock"] = str(recorded.lock)
        print_json(document)
    else:
        report.print_table(result.table())
        report.print(result.headline)
        report.print(f"Its numbers: {done.file}.")
        if recorded is not None:
            report.print(f"{recorded.summary} Written to {recorded.lock}: review and commit it.")
    raise typer.Exit(INTERRUPTED if result.broken_off else SLO_MISSED if result.slo_missed else 0)

"""`roundhouse bench`: its many options, as wishes of a load."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

EXAMPLE = "roundhouse bench sentence-embedder --env local"


class Arriving(StrEnum):
    """How an open loop's requests follow each other."""

    poisson = "poisson"
    even = "even"


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
        float, typer.Option(min=1, help="Length of the search's steps; longer where p99 needs it.")
    ] = 10,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of load before, not counted.")] = 3,
    input: Annotated[
        Path | None, typer.Option(help=".txt, .tsv or .npz; default: the model's accuracy dataset.")
    ] = None,
    texts_per_request: Annotated[
        int,
        typer.Option("--texts-per-request", "--rows", min=1, help="Texts, or rows, of a request."),
    ] = 1,
    binary: Annotated[
        bool | None,
        typer.Option("--binary/--json", help="Tensors as bytes or JSON; default: JSON for texts."),
    ] = None,
    arrivals: Annotated[
        Arriving, typer.Option(help="How an open loop's requests follow each other.")
    ] = Arriving.poisson,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Load processes; default: as many as it takes."),
    ] = None,
    connections: Annotated[
        int, typer.Option(min=1, help="Most connections, all load processes together.")
    ] = 512,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which an answer is given up.")
    ] = 60,
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
        typer.Option("--record", help="Hold the rate found, and write it into the model's lock."),
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Load an endpoint or a server.

    By default: finds the highest rate that holds the SLO. Leaves a report as HTML and JSON.
    """
    from roundhouse.load_test.command import load
    from roundhouse.load_test.traffic import Arrivals
    from roundhouse.load_test.wishes import Wishes
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    wishes = Wishes(
        endpoint=endpoint,
        environment=env,
        model=model,
        url=url,
        closed_loop=closed_loop,
        rate=rate,
        users=users,
        spawn=spawn,
        seconds=seconds,
        phases=tuple(phase or ()),
        slo_ms=slo,
        stop=stop,
        most_requests=max_requests,
        first_rate=first_rate,
        step_seconds=step_seconds,
        warm_up_seconds=warm_up,
        input=input,
        rows_per_request=texts_per_request,
        binary=binary,
        arrivals=Arrivals(arrivals.value),
        seed=seed,
        workers=workers,
        most_connections=connections,
        timeout_seconds=timeout,
        expected_interval_ms=expected_interval,
        output=output,
        record=record,
        command=shlex.join(["roundhouse", *sys.argv[1:]]),
    )
    raise typer.Exit(load(current_paths(root), open_report(form), wishes, form.value))

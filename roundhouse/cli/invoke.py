"""`roundhouse invoke`: one request to an endpoint: texts, arrays from a file, or a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onboarding.deployment import Deployment, Target
    from roundhouse.aws.clients import Client
    from roundhouse.generation_invocation import Prompt
    from roundhouse.invocation import Address
    from roundhouse.report import Report
    from roundhouse.session import Session
    from roundhouse.table import Table

EXAMPLE = (
    'roundhouse invoke text-shared --env local --model sentence-embedder-int8 "a cat" "a kitten"'
)
TEXT_SUFFIXES = (".txt", ".tsv")
QUEUE_SECONDS = 900.0
"""How long an answer of an asynchronous endpoint is waited for."""


def invoke(
    endpoint: Annotated[
        str, typer.Argument(help="Endpoint: the model's name, or the shared endpoint's.")
    ],
    env: Env,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="One text gives its vector, several their likeness."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model of a shared endpoint.")] = None,
    query: Annotated[
        str | None, typer.Option(help="For a ranker: what the texts are ranked for.")
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            help="Arrays: .npz, one per input, or .npy. Texts: .txt or .tsv. Images: .jpg, .png or "
            "a folder of them. Of an asynchronous endpoint also .jsonl: a request on each line."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the answer's arrays to this .npz; of .jsonl its lines."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds to wait for a queued answer (default: 900), or to ask a text generator "
            "again while it is scaled to zero (default: not).",
        ),
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option(help="A prompt of an embedder; default: the model's own.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="For a text generator: what it answers.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="With --prompt: most tokens of the answer.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="With --prompt: print tokens as they come.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Invoke an endpoint, as boto3 would. With texts, a prompt, or a file.

    An asynchronous endpoint is asked through S3, and its answer awaited there.
    """
    from roundhouse import invocation
    from roundhouse.answers import (
        RowRequests,
        answered_fields,
        answers_table,
        arrays_table,
        row_queries,
        rows_table,
    )
    from roundhouse.generation_invocation import Prompt
    from roundhouse.invocation_inputs import (
        arrays_document,
        image_paths,
        read_arrays,
        read_text_rows,
        require_images,
        require_inputs,
        write_arrays,
    )
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import open_session

    report, words = open_report(form), tuple(texts or ())
    images, rows = image_paths(input, words), None
    if input is not None and input.suffix in TEXT_SUFFIXES:
        rows, input = read_text_rows(input, words), None
        words = rows.texts
    session = open_session(current_paths(root), report, env)
    asks = Prompt(text=prompt, max_tokens=max_tokens, stream=stream)
    if _invoke_generator(session, endpoint, asks, wait or 0, form):
        return
    address, target = invocation.address(session.deployments(), endpoint, model)
    deployment = invocation.find_deployment(session.deployments(), endpoint)
    if input is not None and input.suffix == invocation.LINES_SUFFIX:
        _invoke_lines(session, deployment, address, (input, output), wait)
        return
    runtime, most = _runtime(session, deployment, target, wait)
    require_images(target, images)
    if output is not None and (images is not None or input is None):
        invocation.require_arrays(target)
    if images is not None:
        _print_either(report, form, *_image_answer(runtime, address, images, most))
        return
    queries = row_queries(target, rows, query)
    require_inputs(target, words, input, queries[0] if queries else query)
    if input is not None:
        arrays = invocation.invoke_arrays(runtime, address, read_arrays(input, target), most)
        if output is not None:
            write_arrays(output, arrays)
        _print_either(report, form, arrays_document(arrays), arrays_table(arrays))
        return
    requests = RowRequests(
        runtime=runtime, address=address, target=target, most_rows=most, prompt_name=prompt_name
    )
    if rows is not None:
        with report.step(f"Invoke {address.endpoint}") as step:
            answers = requests.answers(words, queries, step.update)
            step.finish(f"{len(answers)} rows")
        shown = rows_table(words, [answer.cell for answer in answers], queries)
        _print_either(report, form, [answer.fields for answer in answers], shown)
    else:
        answers = requests.answers(words, () if query is None else (query,) * len(words))
        fields = answered_fields(answers)
        _print_either(report, form, fields, answers_table(fields))
    if output is not None:
        write_arrays(
            output, {invocation.output_name(target): [answer.vector for answer in answers]}
        )


def _invoke_generator(
    session: Session, endpoint: str, prompt: Prompt, wait_seconds: float, form: Format
) -> bool:
    """Print a text generator's answer as it comes, then its times; False for another endpoint.

    The times stand on standard error. As JSON both come at the answer's end.
    """
    from roundhouse.generation_invocation import Generator, find_generator
    from roundhouse.report import print_json

    address = find_generator(session, endpoint, prompt)
    if address is None:
        return False
    timed = Generator(address=address, clients=session.clients).ask_until(
        prompt.as_request(),
        lambda text: None if form is Format.json else typer.echo(text, nl=False),
        wait_seconds,
        lambda line: typer.echo(line, err=True),
    )
    if form is Format.json:
        print_json(timed.as_dict(address.endpoint))
        return True
    for call in timed.answer.tool_calls:
        typer.echo(f"{call.name}({call.arguments})")
    typer.echo()
    typer.echo(timed.sentence(), err=True)
    return True


def _print_either(report: Report, form: Format, document: Any, shown: Table | str) -> None:
    from roundhouse.report import print_json

    if form is Format.json:
        print_json(document)
    elif isinstance(shown, str):
        report.print(shown)
    else:
        report.print_table(shown)


def _image_answer(
    runtime: Client, address: Address, files: Sequence[Path], most: int
) -> tuple[list[Any], Table]:
    """Return the labels of images, as JSON and as a table."""
    from roundhouse import invocation
    from roundhouse.answers import classes_table

    data = [file.read_bytes() for file in files]
    labels = invocation.invoke_labels(runtime, address, data, most)
    names = [file.name for file in files]
    rows = zip(names, labels, strict=True)
    return [{"image": name, "classes": dict(row)} for name, row in rows], classes_table(
        names, labels
    )


def _runtime(
    session: Session, deployment: Deployment, target: Target, wait: float | None
) -> tuple[Client, int]:
    """Return what asks an endpoint, and the most rows of one request."""
    from roundhouse import invocation

    most = invocation.most_rows(target)
    if deployment.endpoint.asynchronous is None:
        return session.clients("sagemaker-runtime"), most
    seconds = QUEUE_SECONDS if wait is None else wait
    runtime = invocation.asynchronous_runtime(
        session.clients, deployment, seconds, session.report.print
    )
    return runtime, invocation.most_asynchronous_rows(deployment, most)


def _invoke_lines(
    session: Session,
    deployment: Deployment,
    address: Address,
    files: tuple[Path, Path | None],
    wait: float | None,
) -> None:
    """Ask an asynchronous endpoint the lines of a file."""
    from roundhouse import invocation
    from roundhouse.errors import UsageError

    file, output = files
    if output is None:
        raise UsageError(f"--input {file}: its answers are lines too; name a file with --output.")
    say, seconds = session.report.print, QUEUE_SECONDS if wait is None else wait
    runtime = invocation.asynchronous_runtime(session.clients, deployment, seconds, say)
    size = invocation.invoke_lines(runtime, address, file, output)
    say(f"Wrote {size:,} bytes to {output}.")

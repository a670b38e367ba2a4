"""`roundhouse invoke`: one request to an endpoint: texts, arrays from a file, or a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from onboarding.deployment import Deployment, Target
    from roundhouse.aws.clients import Client
    from roundhouse.file_answers import RowAnswer
    from roundhouse.generation_invocation import Prompt
    from roundhouse.invocation import Address, Vector
    from roundhouse.report import Report
    from roundhouse.session import Session
    from roundhouse.text_files import TextRows

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
    from roundhouse import array_files, invocation
    from roundhouse.file_answers import FileRequests, row_queries
    from roundhouse.generation_invocation import Prompt
    from roundhouse.image_paths import image_paths, require_images
    from roundhouse.invocation_inputs import require_inputs
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.reports.answers import arrays_table, rows_table
    from roundhouse.session import open_session

    report, words = open_report(form), tuple(texts or ())
    images, rows = image_paths(input, words), None
    if input is not None and input.suffix in TEXT_SUFFIXES:
        rows, input = _file_rows(input, words), None
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
    if images is not None:
        _refuse_output(output, target)
        _print_either(report, form, *_image_answer(runtime, address, images, most))
        return
    queries = row_queries(target, rows, query)
    require_inputs(target, words, input, queries[0] if queries else query)
    if input is not None:
        arrays = invocation.invoke_arrays(runtime, address, array_files.read(input, target), most)
        if output is not None:
            array_files.write(output, arrays)
        _print_either(report, form, array_files.as_document(arrays), arrays_table(arrays))
    elif rows is not None:
        requests = FileRequests(
            runtime=runtime, address=address, target=target, most_rows=most, prompt_name=prompt_name
        )
        with report.step(f"Invoke {address.endpoint}") as step:
            answers = requests.answers(rows, queries, step.update)
            step.finish(f"{len(answers)} rows")
        _write_rows(output, target, answers)
        shown = rows_table(rows.texts, [answer.cell for answer in answers], queries)
        _print_either(report, form, [answer.fields for answer in answers], shown)
    elif _has_head(target):
        _refuse_output(output, target)
        _print_either(report, form, *_head_answer(runtime, address, target, words, query))
    else:
        vectors = invocation.invoke_texts(runtime, address, words, most, prompt_name=prompt_name)
        _write_vectors(output, target, vectors)
        if form is Format.json:
            print_json(_document(target, words, vectors))
        else:
            _print(report, target, words, vectors)


def _invoke_generator(
    session: Session, endpoint: str, prompt: Prompt, wait_seconds: float, form: Format
) -> bool:
    """Print a text generator's answer as it comes, then its times; False for another endpoint.

    The times stand on standard error. As JSON both come at the answer's end.
    """
    from roundhouse.generation_invocation import find_generator, generator_client
    from roundhouse.report import print_json

    address = find_generator(session, endpoint, prompt)
    if address is None:
        return False
    timed = generator_client(session, address, prompt).ask_until(
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


def _print_either(report: Report, form: Format, document: Any, shown: Table) -> None:
    from roundhouse.report import print_json

    if form is Format.json:
        print_json(document)
    else:
        report.print_table(shown)


def _file_rows(file: Path, texts: Sequence[str]) -> TextRows:
    from roundhouse.errors import UsageError
    from roundhouse.text_files import read_text_rows

    if texts:
        raise UsageError("--input: give texts as arguments or in a file, not both.")
    return read_text_rows(file)


def _image_answer(
    runtime: Client, address: Address, files: Sequence[Path], most: int
) -> tuple[list[Any], Table]:
    """Return the labels of images, as JSON and as a table."""
    from roundhouse import invocation
    from roundhouse.reports.answers import classes_table

    data = [file.read_bytes() for file in files]
    labels = invocation.invoke_labels(runtime, address, data, most)
    names = [file.name for file in files]
    rows = zip(names, labels, strict=True)
    return [{"image": name, "classes": dict(row)} for name, row in rows], classes_table(
        names, labels
    )


def _write_rows(output: Path | None, target: Target, answers: Sequence[RowAnswer]) -> None:
    vectors = [answer.vector for answer in answers]
    if None in vectors:
        _refuse_output(output, target)
    else:
        _write_vectors(output, target, vectors)


def _write_vectors(output: Path | None, target: Target, vectors: Sequence[Vector | None]) -> None:
    from roundhouse import array_files, invocation

    if output is not None:
        array_files.write(output, {invocation.output_name(target): vectors})


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


def _has_head(target: Target) -> bool:
    from roundhouse import invocation

    heads = ("text-classification", "text-ranking", "token-classification")
    return target.model.task in heads and invocation.answers_labels(target)


def _refuse_output(output: Path | None, target: Target) -> None:
    from roundhouse.errors import UsageError

    if output is not None:
        raise UsageError(
            f"--output: {target.model.name} answers labels, no arrays; use --format json."
        )


def _head_answer(
    runtime: Client, address: Address, target: Target, texts: Sequence[str], query: str | None
) -> tuple[list[Any], Table]:
    """Return the answer of a model with a head, as JSON and as a table."""
    from roundhouse import invocation
    from roundhouse.reports.answers import classes_table, entities_table, ranking_table

    most = invocation.most_rows(target)
    if query is not None:
        scores = invocation.invoke_ranking(runtime, address, query, texts, most)
        ranked = sorted(zip(texts, scores, strict=True), key=lambda pair: -pair[1])
        return [{"text": text, "score": score} for text, score in ranked], ranking_table(ranked)
    if target.model.task == "token-classification":
        found = invocation.invoke_entities(runtime, address, texts, most)
        document = [
            {"text": text, "entities": [entity._asdict() for entity in entities]}
            for text, entities in zip(texts, found, strict=True)
        ]
        return document, entities_table(texts, found)
    labels = invocation.invoke_labels(runtime, address, texts, most)
    rows = zip(texts, labels, strict=True)
    return [{"text": text, "classes": dict(row)} for text, row in rows], classes_table(
        texts, labels
    )


def _document(target: Target, texts: Sequence[str], vectors: Sequence[Vector]) -> list[Any]:
    from roundhouse import invocation

    if target.model.task == "text-classification":
        classes = invocation.classes(target, vectors)
        return [
            {"text": text, "classes": dict(scores)}
            for text, scores in zip(texts, classes, strict=True)
        ]
    return [
        {"text": text, "embedding": vector} for text, vector in zip(texts, vectors, strict=True)
    ]


def _print(report: Report, target: Target, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
    from roundhouse import invocation
    from roundhouse.reports.answers import classes_table, cosine_table, vector_text

    if target.model.task == "text-classification":
        report.print_table(classes_table(texts, invocation.classes(target, vectors)))
    elif len(vectors) == 1:
        report.print(vector_text(vectors[0]))
    else:
        report.print_table(cosine_table(texts, vectors))

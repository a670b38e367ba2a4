"""`roundhouse invoke`: one request to an endpoint, with texts or with arrays from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from container.entities import Entity
    from onboarding.deployment import Target
    from roundhouse.aws.clients import Client
    from roundhouse.invocation import Address, Scores, Vector
    from roundhouse.report import Report

EXAMPLE = (
    'roundhouse invoke text-shared --env local --model sentence-embedder-int8 "a cat" "a kitten"'
)


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
            help="For a model of arrays: .npz, an array per input, or .npy, its one input."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the answer's arrays to this .npz.")
    ] = None,
    asynchronous: Annotated[
        bool,
        typer.Option("--async", help="Ask an asynchronous endpoint: by S3, and wait for it there."),
    ] = False,
    wait_seconds: Annotated[
        float, typer.Option(min=1, help="With --async: how long to wait for the answer.")
    ] = 900,
    prompt_name: Annotated[
        str | None, typer.Option(help="A prompt of an embedder; default: the model's own.")
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Invoke an endpoint, as boto3 would. With texts, or with arrays from a file."""
    from roundhouse import array_files, invocation
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    report, words = open_report(form), tuple(texts or ())
    session = open_session(current_paths(root), report, env)
    address, target = invocation.address(session.deployments(), endpoint, model)
    invocation.require_inputs(target, words, input, query)
    runtime, most = session.clients("sagemaker-runtime"), invocation.most_rows(target)
    if asynchronous:
        deployment = invocation.find_deployment(session.deployments(), endpoint)
        runtime = invocation.asynchronous_runtime(
            session.clients, deployment, wait_seconds, report.print
        )
        most = invocation.most_asynchronous_rows(deployment, most)
    if input is not None:
        inputs = array_files.read(input, target)
        arrays = invocation.invoke_arrays(runtime, address, inputs, most)
        if output is not None:
            array_files.write(output, arrays)
        if form is Format.json:
            print_json(array_files.as_document(arrays))
        else:
            report.print_table(arrays_table(arrays))
        return
    if _has_head(target):
        _refuse_output(output, target)
        document, shown = _head_answer(runtime, address, target, words, query)
        if form is Format.json:
            print_json(document)
        else:
            report.print_table(shown)
        return
    vectors = invocation.invoke_texts(runtime, address, words, most, prompt_name=prompt_name)
    if output is not None:
        array_files.write(output, {invocation.output_name(target): vectors})
    if form is Format.json:
        print_json(_document(target, words, vectors))
    else:
        _print(report, target, words, vectors)


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

    if target.model.task == "text-classification":
        report.print_table(classes_table(texts, invocation.classes(target, vectors)))
    elif len(vectors) == 1:
        head = ", ".join(f"{number:+.4f}" for number in vectors[0][:8])
        report.print(f"[{head}, …]  {len(vectors[0])} numbers")
    else:
        report.print_table(cosine_table(texts, vectors))


def classes_table(texts: Sequence[str], classes: Sequence[Scores]) -> Table:
    """Return a table of the likeliest class of every text, and the next ones."""
    from roundhouse.report import table

    return table(
        ("Text", "Class", "Score", "Then"),
        (
            (
                text,
                scores[0][0],
                f"{scores[0][1]:.3f}",
                ", ".join(f"{name} {share:.3f}" for name, share in scores[1:4]),
            )
            for text, scores in zip(texts, classes, strict=True)
        ),
        right=("Score",),
    )


def ranking_table(ranked: Sequence[tuple[str, float]]) -> Table:
    """Return a table of texts with their scores, the highest first."""
    from roundhouse.report import table

    rows = ((str(place), f"{score:.4f}", text) for place, (text, score) in enumerate(ranked, 1))
    return table(("Rank", "Score", "Text"), rows, right=("Rank", "Score"))


def entities_table(texts: Sequence[str], found: Sequence[Sequence[Entity]]) -> Table:
    """Return a table of the entities of every text; a text without any has a row of its own."""
    from roundhouse.report import table

    rows = [
        (text, entity.text, entity.label, f"{entity.score:.3f}", f"{entity.start}-{entity.end}")
        for text, entities in zip(texts, found, strict=True)
        for entity in entities
    ]
    rows += [
        (text, "none", "", "", "") for text, none in zip(texts, found, strict=True) if not none
    ]
    return table(("Text", "Entity", "Label", "Score", "Characters"), rows, right=("Score",))


def cosine_table(texts: Sequence[str], vectors: Sequence[Vector]) -> Table:
    """Return a table of the cosine of every text with every other."""
    from roundhouse.invocation import cosine
    from roundhouse.report import table

    numbers = tuple(map(str, range(1, len(texts) + 1)))
    return table(
        ("Cosine", *numbers),
        (
            (f"{number} {text}", *(f"{cosine(vector, other):.3f}" for other in vectors))
            for number, text, vector in zip(numbers, texts, vectors, strict=True)
        ),
        right=numbers,
    )


def arrays_table(arrays: Mapping[str, Any]) -> Table:
    """Return a table of the name, shape, type and first values of every array."""
    from roundhouse.report import table

    return table(
        ("Output", "Shape", "Type", "First values"),
        (
            (name, " × ".join(map(str, array.shape)), str(array.dtype), _first_values(array))
            for name, array in arrays.items()
        ),
    )


def _first_values(array: Any) -> str:
    values = array.reshape(-1)[:6]
    head = (f"{value:g}" if array.dtype.kind == "f" else str(value) for value in values)
    return ", ".join(head) + (", …" if array.size > 6 else "")

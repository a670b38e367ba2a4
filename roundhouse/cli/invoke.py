"""`roundhouse invoke`: one request to an endpoint: texts, arrays, an image, or a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from onboarding.deployment import Deployment
    from roundhouse.aws.clients import Client
    from roundhouse.generation_invocation import Prompt
    from roundhouse.session import Session
    from roundhouse.table import Table

EXAMPLE = (
    'roundhouse invoke text-shared --env local --model sentence-embedder-int8 "a cat" "a kitten"'
)
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
        Path | None, typer.Option(help="Arrays: .npz, one per input. An image: .jpg or .png.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds to wait for a queued answer (default: 900), or to ask an endpoint again "
            "that is scaled to zero (default: not).",
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

    An asynchronous endpoint is asked through S3, and its answer awaited there. One request holds at
    most the engine's largest batch.
    """
    from roundhouse import invocation
    from roundhouse.answers import (
        answers_table,
        arrays_document,
        arrays_table,
        read_arrays,
        read_image,
        require_inputs,
        text_answers,
    )
    from roundhouse.generation_invocation import Prompt
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    report, words, image = open_report(form), tuple(texts or ()), read_image(input)
    session = open_session(current_paths(root), report, env)
    asks = Prompt(text=prompt, max_tokens=max_tokens, stream=stream)
    if _invoke_generator(session, endpoint, asks, wait or 0, form):
        return
    address, target = invocation.address(session.deployments(), endpoint, model)
    deployment = invocation.find_deployment(session.deployments(), endpoint)
    require_inputs(target, words, input, query, is_image=image is not None)
    runtime = _runtime(session, deployment, wait)

    def ask() -> tuple[Any, Table | str]:
        if input is not None and image is not None:
            with invocation.endpoint_client(runtime, address, binary=True) as client:
                (labels,) = client.classify_images([image])
            classes = [{"image": input.name, "classes": dict(labels)}]
            return classes, answers_table(classes)
        if input is not None:
            with invocation.endpoint_client(runtime, address, binary=True) as client:
                arrays = client.ask(read_arrays(input))
            return arrays_document(arrays), arrays_table(arrays)
        answers = text_answers(runtime, address, target, words, query, prompt_name)
        return answers, answers_table(answers)

    def say(line: str) -> None:
        typer.echo(line, err=True)

    document, shown = invocation.ask_until(ask, endpoint, wait or 0, say)
    if form is Format.json:
        print_json(document)
    elif isinstance(shown, str):
        report.print(shown)
    else:
        report.print_table(shown)


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


def _runtime(session: Session, deployment: Deployment, wait: float | None) -> Client:
    """Return what asks an endpoint: SageMaker's client, or what waits for its queue."""
    from roundhouse import invocation

    if deployment.endpoint.asynchronous is None:
        return session.clients("sagemaker-runtime")
    seconds = QUEUE_SECONDS if wait is None else wait
    return invocation.asynchronous_runtime(
        session.clients, deployment, seconds, session.report.print
    )

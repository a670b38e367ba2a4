"""Compares both servers' answers with the same float network in ONNX Runtime on this CPU."""

from __future__ import annotations

import json

from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import FEWEST, NETWORK, Setup, TinyModel
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep, no_endpoint
from roundhouse.acceptance.tiny_texts import shuffled_texts
from roundhouse.errors import NotReadyError
from roundhouse.invocation import Address, Vector, cosine, invoke_texts
from roundhouse.processes import Command
from roundhouse.session import Session

LEAST = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.9}
"""Cosine of the worst answer, by precision; int8's is the budget of the tiny models."""
COMPARED = 24
ROWS = 8
"""Of a request: the largest batch of the profiles."""
PROGRAM = "roundhouse.acceptance.tiny_network"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return how near each server's answers are to the CPU's."""
    return tuple(
        Assumption(
            name=f"accuracy.{model.name}",
            says=f"worst cosine of {COMPARED} answers of the {model.precision} engine with the "
            "float network's on a CPU",
            expected=f"at least {LEAST[model.precision]}",
        )
        for model in setup.deployed
    )


def run(context: AcceptanceContext) -> str:
    """Ask for the vectors of some texts, short and long, in batches and alone."""
    texts = comparison_texts()
    reference = reference_vectors(context.session, texts)
    worst = {}
    for model in context.answering():
        vectors = ask(context, model, texts)
        cosines = [cosine(left, right) for left, right in zip(vectors, reference, strict=True)]
        context.evidence.write_json(
            f"accuracy/{model.name}.json", {"cosines": cosines, "vectors": vectors}
        )
        worst[model.name] = min(cosines)
        is_near = worst[model.name] >= LEAST[model.precision]
        found = f"{worst[model.name]:.6f}"
        context.findings.record(f"accuracy.{model.name}", found, holds=is_near)
    return ", ".join(f"{name} {value:.5f}" for name, value in worst.items())


def comparison_texts() -> list[str]:
    """Return texts that calibration never saw: some short, and some of several joined."""
    held = shuffled_texts()[-COMPARED * 4 :]
    return [held[i] if i % 2 else " ".join(held[i : i + 4]) for i in range(COMPARED)]


def ask(context: AcceptanceContext, model: TinyModel, texts: list[str]) -> tuple[Vector, ...]:
    """Return an endpoint's vectors; the last text is asked alone."""
    runtime = context.session.clients("sagemaker-runtime")
    address = Address(endpoint=context.setup.endpoint(model), target_model=None)
    most = invoke_texts(runtime, address, texts[:-1], ROWS)
    return (*most, *invoke_texts(runtime, address, texts[-1:]))


def reference_vectors(session: Session, texts: list[str]) -> tuple[Vector, ...]:
    """Return the float network's vectors. Raises NotReadyError where they cannot be computed."""
    python = str(session.paths.venv_python("builder"))
    folder = (session.paths.tree / NETWORK).parent
    command = Command(
        argv=(python, "-m", PROGRAM, "answer", str(folder)),
        folder=session.paths.code,
        environment=session.variables,
        stdin=json.dumps(texts),
    )
    outcome = session.run(command)
    try:
        rows = json.loads(outcome.output.strip().splitlines()[-1])
        return tuple(tuple(map(float, row)) for row in rows)
    except (IndexError, ValueError, TypeError) as error:
        ended = f"`{command}` ended with {outcome.code}: {outcome.last_lines()}"
        raise NotReadyError(
            f"The CPU's own answers could not be computed, {ended}; `make environments` mends the "
            "builder's environment."
        ) from error


ACCURACY = AcceptanceStep(
    name="accuracy",
    title="Comparing answers with the CPU's",
    limit_minutes=5,
    assumptions=assumptions,
    run=run,
    instances={"python": FEWEST, "triton": 1},
    obstacle=no_endpoint,
)

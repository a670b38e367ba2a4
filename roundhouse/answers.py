"""What an endpoint answers to rows: requests in batches, an answer a row, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from onboarding.deployment import Target
from roundhouse import invocation
from roundhouse.aws.clients import Client
from roundhouse.errors import UsageError
from roundhouse.invocation import Address, Scores, Vector, cosine
from roundhouse.invocation_inputs import TextRows
from roundhouse.table import table

if TYPE_CHECKING:
    from roundhouse.table import Table

SHOWN_NUMBERS = 4
"""Of each row's vector, in a table."""


@dataclass(frozen=True, kw_only=True)
class RowAnswer:
    """The answer of one row: its fields for JSON, its cell of a table, its vector if it has one."""

    fields: dict[str, Any]
    cell: str
    vector: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class RowRequests:
    """Requests for rows of texts."""

    runtime: Client
    address: Address
    target: Target
    most_rows: int
    """Of one request."""
    prompt_name: str | None = None

    def answers(
        self,
        texts: Sequence[str],
        queries: Sequence[str] = (),
        update: Callable[[str], None] = lambda text: None,
    ) -> list[RowAnswer]:
        """Return the answer of each row; `update` receives the progress. Raises RoundhouseError."""
        found: list[RowAnswer] = []
        for query, batch in self._batches(texts, queries):
            found += self._invoke(batch, query)
            update(f"{len(found)} of {len(texts)} rows")
        return found

    def _batches(
        self, texts: Sequence[str], queries: Sequence[str]
    ) -> Iterator[tuple[str | None, list[str]]]:
        """Yield the texts of each request; those of a ranker share a query."""
        each = queries or (None,) * len(texts)
        for query, pairs in groupby(zip(each, texts, strict=True), key=lambda pair: pair[0]):
            run = [text for _, text in pairs]
            for start in range(0, len(run), self.most_rows):
                yield query, run[start : start + self.most_rows]

    def _invoke(self, texts: list[str], query: str | None) -> list[RowAnswer]:
        endpoint = (self.runtime, self.address)
        if query is not None:
            scores = invocation.invoke_ranking(*endpoint, query, texts, self.most_rows)
            return [
                RowAnswer(
                    fields={"query": query, "text": text, "score": score}, cell=f"{score:.4f}"
                )
                for text, score in zip(texts, scores, strict=True)
            ]
        task, named = self.target.model.task, invocation.answers_labels(self.target)
        if task == "token-classification":
            found = invocation.invoke_entities(*endpoint, texts, self.most_rows)
            return [
                RowAnswer(
                    fields={"text": text, "entities": [item._asdict() for item in entities]},
                    cell=", ".join(f"{e.text} {e.label} {e.score:.3f}" for e in entities) or "none",
                )
                for text, entities in zip(texts, found, strict=True)
            ]
        if task == "text-classification" and named:
            classes = invocation.invoke_labels(*endpoint, texts, self.most_rows)
            return [
                RowAnswer(fields={"text": text, "classes": dict(row)}, cell=classes_text(row))
                for text, row in zip(texts, classes, strict=True)
            ]
        vectors = invocation.invoke_texts(
            *endpoint, texts, self.most_rows, prompt_name=self.prompt_name
        )
        return [self._of_vector(text, row) for text, row in zip(texts, vectors, strict=True)]

    def _of_vector(self, text: str, vector: Vector) -> RowAnswer:
        if self.target.model.task == "text-classification":
            (row,) = invocation.classes(self.target, (vector,))
            fields = {"text": text, "classes": dict(row)}
            return RowAnswer(fields=fields, cell=classes_text(row), vector=vector)
        return RowAnswer(
            fields={"text": text, "embedding": vector},
            cell=vector_text(vector, SHOWN_NUMBERS),
            vector=vector,
        )


def row_queries(target: Target, rows: TextRows | None, query: str | None) -> tuple[str, ...]:
    """Return the query of each row of a ranker's file; empty where no row has one.

    Raises UsageError where a query is given and each row has its own.
    """
    if target.model.task != "text-ranking" or rows is None:
        return ()
    if not rows.first:
        return () if query is None else (query,) * len(rows.texts)
    if query is not None:
        raise UsageError("--query: each row of the file has a query; leave --query out.")
    return rows.first


def rows_table(texts: Sequence[str], answers: Sequence[str], queries: Sequence[str] = ()) -> Table:
    """Return a table of the rows of a file, in its order, with the answer of each."""
    numbers = map(str, range(1, len(texts) + 1))
    if queries:
        return table(
            ("Row", "Query", "Text", "Score"),
            zip(numbers, queries, texts, answers, strict=True),
            right=("Row", "Score"),
        )
    return table(
        ("Row", "Text", "Answer"), zip(numbers, texts, answers, strict=True), right=("Row",)
    )


def vector_text(vector: Vector, most: int = 8) -> str:
    """Return the first numbers of a vector, and how many it has."""
    head = ", ".join(f"{number:+.4f}" for number in vector[:most])
    return f"[{head}, …]  {len(vector)} numbers"


def classes_text(scores: Scores, most: int = 3) -> str:
    """Return the likeliest labels of a text with their scores."""
    return ", ".join(f"{name} {share:.3f}" for name, share in scores[:most])


def answered_fields(answers: Sequence[RowAnswer]) -> list[dict[str, Any]]:
    """Return the fields of the answers to texts, those of a ranking with the highest first."""
    fields = [answer.fields for answer in answers]
    if "score" not in fields[0]:
        return fields
    ranked = sorted(fields, key=lambda row: -row["score"])
    return [{"text": row["text"], "score": row["score"]} for row in ranked]


def answers_table(fields: Sequence[Mapping[str, Any]]) -> Table | str:
    """Return a table of the answers to texts, by their fields; a line for a single vector."""
    texts = [row["text"] for row in fields]
    if "score" in fields[0]:
        ranked = ((str(n), f"{row['score']:.4f}", row["text"]) for n, row in enumerate(fields, 1))
        return table(("Rank", "Score", "Text"), ranked, right=("Rank", "Score"))
    if "entities" in fields[0]:
        return _entities_table(fields)
    if "classes" in fields[0]:
        return classes_table(texts, [tuple(row["classes"].items()) for row in fields])
    vectors = [row["embedding"] for row in fields]
    return vector_text(vectors[0]) if len(vectors) == 1 else cosine_table(texts, vectors)


def classes_table(texts: Sequence[str], classes: Sequence[Scores]) -> Table:
    """Return a table of the likeliest class of every text, and the next ones."""
    rows = (
        (text, scores[0][0], f"{scores[0][1]:.3f}", classes_text(scores[1:]))
        for text, scores in zip(texts, classes, strict=True)
    )
    return table(("Text", "Class", "Score", "Then"), rows, right=("Score",))


def _entities_table(fields: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the entities of every text; a text without any has a row of its own."""
    rows = [
        (row["text"], e["text"], e["label"], f"{e['score']:.3f}", f"{e['start']}-{e['end']}")
        for row in fields
        for e in row["entities"]
    ]
    rows += [(row["text"], "none", "", "", "") for row in fields if not row["entities"]]
    return table(("Text", "Entity", "Label", "Score", "Characters"), rows, right=("Score",))


def cosine_table(texts: Sequence[str], vectors: Sequence[Vector]) -> Table:
    """Return a table of the cosine of every text with every other."""
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

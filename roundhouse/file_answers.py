"""What an endpoint answers to the rows of a file: in batches, an answer a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from onboarding.deployment import Target
from roundhouse import invocation
from roundhouse.aws.clients import Client
from roundhouse.errors import UsageError
from roundhouse.invocation import Address, Vector
from roundhouse.reports.answers import classes_text, entities_text, vector_text
from roundhouse.text_files import TextRows

SHOWN_NUMBERS = 4
"""Of each row's vector, in a table."""


@dataclass(frozen=True, kw_only=True)
class RowAnswer:
    """The answer of one row: its fields for JSON, its cell of a table, its vector if it has one."""

    fields: dict[str, Any]
    cell: str
    vector: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class FileRequests:
    """Requests for the rows of a file."""

    runtime: Client
    address: Address
    target: Target
    most_rows: int
    """Of one request."""
    prompt_name: str | None

    def answers(
        self, rows: TextRows, queries: Sequence[str], update: Callable[[str], None]
    ) -> list[RowAnswer]:
        """Return the answer of each row; `update` receives the progress. Raises RoundhouseError."""
        found: list[RowAnswer] = []
        for query, texts in self._batches(rows.texts, queries):
            found += self._invoke(texts, query)
            update(f"{len(found)} of {len(rows.texts)} rows")
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
                    cell=entities_text(entities),
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
            return RowAnswer(fields={"text": text, "classes": dict(row)}, cell=classes_text(row))
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

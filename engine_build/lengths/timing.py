"""The time of an engine at the shapes of real requests: each shape alone, and requests in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed
from engine_build.datasets.text import TEXT_INPUTS
from engine_build.evaluation.runtimes import Running

Size = tuple[int, int]
"""Rows and tokens of a batch, padding included."""
Run = tuple[Sequence[int], Size]
"""Tokens of each row without padding, and the size that it is padded to."""
LEAST_ROUNDS = 3


class Timer:
    """Times an engine with real tokens, padded and masked as a server pads them."""

    def __init__(
        self,
        engine: Running,
        inputs: Sequence[str],
        words: Sequence[int],
        *,
        clock: Callable[[], float] = time.perf_counter,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._engine, self._inputs, self._clock = engine, tuple(inputs), clock
        self._words = np.array(words or [0], dtype=np.int64)
        self._progress = progress

    def shapes(self, sizes: Sequence[Size], seconds: float) -> list[dict[str, Any]]:
        """Return the median milliseconds of each size, in rounds of random order."""
        feeds = [self._feed(((tokens,) * rows, (rows, tokens))) for rows, tokens in sizes]
        found = self._rounds([[feed] for feed in feeds], seconds, "shapes")
        return [
            {"rows": rows, "tokens": tokens, "ms": round(float(np.median(times)), 4)}
            | {"runs": len(times)}
            for (rows, tokens), times in zip(sizes, found, strict=True)
        ]

    def replays(
        self, replays: Mapping[str, Sequence[Sequence[Run]]], seconds: float
    ) -> dict[str, list[list[float]]]:
        """Return the milliseconds of each request, a list of runs, in each round, by replay.

        Every round has the requests of all replays in random order, so that what disturbs the
        machine disturbs them all.
        """
        feeds = [
            [self._feed(run) for run in request]
            for requests in replays.values()
            for request in requests
        ]
        found = iter(self._rounds(feeds, seconds, "requests"))
        return {
            name: [[round(ms, 4) for ms in next(found)] for _ in requests]
            for name, requests in replays.items()
        }

    def _rounds(
        self, lists: Sequence[Sequence[Feed]], seconds: float, noun: str
    ) -> list[list[float]]:
        """Run every list once to warm up, then in rounds until the time is over."""
        for feeds in lists:
            for feed in feeds:
                self._engine.rows(feed)
        times: list[list[float]] = [[] for _ in lists]
        order, end, rounds = random.Random(0), self._clock() + seconds, 0
        while rounds < LEAST_ROUNDS or self._clock() < end:
            for index in order.sample(range(len(lists)), len(lists)):
                begin = self._clock()
                for feed in lists[index]:
                    self._engine.rows(feed)
                times[index].append((self._clock() - begin) * 1000)
            rounds += 1
            self._progress(f"{len(lists)} {noun}, round {rounds}")
        return times

    def _feed(self, run: Run) -> Feed:
        lengths, (rows, tokens) = run
        counts: Array = np.zeros(rows, dtype=np.int64)
        counts[: len(lengths)] = lengths
        # Rows that fill a batch up have one token that is not masked, as in the servers.
        mask = (np.arange(tokens) < np.maximum(counts, 1)[:, None]).astype(np.int64)
        ids = np.resize(self._words, (rows, tokens)) * mask
        values = {"input_ids": ids, ATTENTION_MASK: mask, "token_type_ids": np.zeros_like(ids)}
        return {name: values[name] for name in self._inputs if name in TEXT_INPUTS}

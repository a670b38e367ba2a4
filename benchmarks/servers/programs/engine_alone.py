"""The network without a server.

Arguments: MODE ENGINE TOKENIZER TEXTS MAX_TOKENS SECONDS [WORKERS KIND BUDGET]. TEXTS: one a line.
Modes: `limit` (texts a second of all workers, in batches of BUDGET padded tokens), `direct` (one
text a call), `answers`, `lengths` (tokens of each text). `limit` sorts a window of 64 texts, as
many as 64 clients have waiting, and counts texts answered after a start that all workers share.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing import dummy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

WINDOW = 64
MAX_ROWS = 32
Files = tuple[str, str, int]
"""Network, tokenizer, and the most tokens of a text."""


class Network:
    """Tokenizer and session, called with texts."""

    def __init__(self, engine: str, tokenizer: str, max_tokens: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(engine, options, providers=providers)
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_tokens)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def run(self, rows: Sequence[Sequence[int]]) -> Any:
        """Return the network's answer to rows of tokens, padded to the longest."""
        ids: Any = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return self._session.run(None, {name: feed[name] for name in self._inputs})[0]


def direct(network: Network, texts: Sequence[str], seconds: float) -> dict[str, float]:
    """Return the milliseconds of tokenizing and running one text."""
    for text in texts[:50]:
        network.run(network.tokens([text]))
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        network.run(network.tokens([texts[len(durations) % len(texts)]]))
        durations.append(1e3 * (time.perf_counter() - begin))
    return {"p50_ms": statistics.median(durations), "calls": len(durations)}


def batches(rows: list[list[int]], budget: int) -> list[list[list[int]]]:
    """Return batches of rows sorted by length, of at most `budget` padded tokens or 32 rows."""
    result: list[list[list[int]]] = []
    for row in sorted(rows, key=len):
        if result and len(result[-1]) < MAX_ROWS and (len(result[-1]) + 1) * len(row) <= budget:
            result[-1].append(row)
        else:
            result.append([row])
    return result


def work(
    network: Network | Files,
    texts: Sequence[str],
    seconds: float,
    budget: int,
    barrier: Any,
    rates: Any,
) -> None:
    """Put the texts a second of one worker into a queue; files are a network of its own."""
    network = network if isinstance(network, Network) else Network(*network)
    network.run(network.tokens(texts[:1]))
    barrier.wait()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        window = [texts[index % len(texts)] for index in range(count, count + WINDOW)]
        for rows in batches(network.tokens(window), budget):
            network.run(rows)
        count += WINDOW
    rates.put(count / (time.perf_counter() - begin))


def limit(
    files: Files, texts: Sequence[str], seconds: float, count: int, kind: str, budget: int
) -> dict[str, Any]:
    """Return the texts a second of all workers.

    `processes`, each with its session, or `threads` that share one.
    """
    shares_one = kind == "threads"
    context: Any = dummy if shares_one else multiprocessing.get_context("spawn")
    network = Network(*files) if shares_one else files
    barrier, rates = context.Barrier(count), context.Queue()
    workers = [
        context.Process(
            target=work, args=(network, texts[index::count], seconds, budget, barrier, rates)
        )
        for index in range(count)
    ]
    for worker in workers:
        worker.start()
    rate = sum(rates.get() for _ in workers)
    for worker in workers:
        worker.join()
    return {"rate": rate, "workers": count, "kind": kind, "budget": budget}


def measure(mode: str, files: Files, texts: list[str], *more: str) -> Any:
    """Return what one mode measures."""
    seconds = float(more[0])
    if mode == "limit":
        workers, kind, budget = more[1:]
        return limit(files, texts, seconds, int(workers), kind, int(budget))
    network = Network(*files)
    if mode == "direct":
        return direct(network, texts, seconds)
    if mode == "lengths":
        return [len(ids) for ids in network.tokens(texts)]
    return [network.run(network.tokens([text]))[0].tolist() for text in texts]


if __name__ == "__main__":
    mode, engine, tokenizer, file, max_tokens, *more = sys.argv[1:]
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    files = (engine, tokenizer, int(max_tokens))
    print("ROUNDHOUSE " + json.dumps(measure(mode, files, texts, *more)), flush=True)

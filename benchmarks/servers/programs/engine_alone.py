"""The network without a server.

`limit` (both cores, batches of BUDGET padded tokens), `direct` (one text a call), `answers`,
`lengths` (tokens of each text).

Arguments: MODE ENGINE TOKENIZER TEXTS MAX_TOKENS SECONDS [WORKERS KIND BUDGET]. TEXTS: one a line.
`limit` sorts a window of 64 texts, as many as 64 clients have waiting, and counts texts answered
after a start that all workers make together.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

WINDOW = 64
MAX_ROWS = 32


class Network:
    """Tokenizer and session, called with texts."""

    def __init__(self, engine: str, tokenizer: str, max_tokens: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            engine, options, providers=["CPUExecutionProvider"]
        )
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_tokens)

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def run(self, rows: Sequence[Sequence[int]]) -> Any:
        """The network's answer to rows of tokens, padded to the longest."""
        longest = max(map(len, rows))
        feed: dict[str, Any] = {
            name: np.zeros((len(rows), longest), np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for index, row in enumerate(rows):
            feed["input_ids"][index, : len(row)] = row
            feed["attention_mask"][index, : len(row)] = 1
        return self._session.run(None, {name: feed[name] for name in self._inputs})[0]


def direct(network: Network, texts: Sequence[str], seconds: float) -> dict[str, float]:
    """Milliseconds of one text: tokenize, run."""
    taken: list[float] = []
    for text in texts[:50]:
        network.run(network.tokens([text]))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        network.run(network.tokens([texts[len(taken) % len(texts)]]))
        taken.append(1e3 * (time.perf_counter() - begin))
    return {
        "p50_ms": statistics.median(taken),
        "p99_ms": sorted(taken)[int(0.99 * len(taken))],
        "calls": len(taken),
    }


def batches(rows: list[list[int]], budget: int) -> list[list[list[int]]]:
    """Return batches of rows sorted by length, of at most `budget` padded tokens or 32 rows."""
    found: list[list[list[int]]] = []
    for row in sorted(rows, key=len):
        if found and len(found[-1]) < MAX_ROWS and (len(found[-1]) + 1) * len(row) <= budget:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def worker(
    network: Network, texts: Sequence[str], seconds: float, budget: int, barrier: Any
) -> float:
    """Texts a second of one worker."""
    network.run(network.tokens(texts[:1]))
    barrier.wait()
    done, place, begin = 0, 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for rows in batches(
            network.tokens([texts[(place + index) % len(texts)] for index in range(WINDOW)]), budget
        ):
            network.run(rows)
        place, done = place + WINDOW, done + WINDOW
    return done / (time.perf_counter() - begin)


def in_process(
    paths: tuple[str, str, int],
    texts: Sequence[str],
    seconds: float,
    budget: int,
    barrier: Any,
    listed: Any,
) -> None:
    """A worker with a network of its own."""
    listed.put(worker(Network(*paths), texts, seconds, budget, barrier))


def limit(
    paths: tuple[str, str, int],
    texts: Sequence[str],
    seconds: float,
    workers: int,
    kind: str,
    budget: int,
) -> dict[str, Any]:
    """Texts a second of all workers.

    `processes`, each with its session, or `threads` that share one.
    """
    shares = [texts[index::workers] for index in range(workers)]
    if kind == "processes":
        context = multiprocessing.get_context("spawn")
        barrier, listed = context.Barrier(workers), context.Queue()
        running: list[Any] = [
            context.Process(
                target=in_process, args=(paths, share, seconds, budget, barrier, listed)
            )
            for share in shares
        ]
        for server in running:
            server.start()
        rates = [listed.get() for _ in shares]
    else:
        network, rates, gate = Network(*paths), [], threading.Barrier(workers)
        running = [
            threading.Thread(
                target=lambda share=share: rates.append(
                    worker(network, share, seconds, budget, gate)
                )
            )
            for share in shares
        ]
        for server in running:
            server.start()
    for server in running:
        server.join()
    return {"rate": sum(rates), "workers": workers, "kind": kind, "budget": budget}


def main(arguments: Sequence[str]) -> None:
    """Prints what one mode measured."""
    mode, engine, tokenizer, file, max_tokens, seconds, *more = arguments
    paths, texts = (
        (engine, tokenizer, int(max_tokens)),
        Path(file).read_text(encoding="utf-8").splitlines(),
    )
    if mode == "limit":
        found: Any = limit(paths, texts, float(seconds), int(more[0]), more[1], int(more[2]))
    elif mode == "direct":
        found = direct(Network(*paths), texts, float(seconds))
    elif mode == "lengths":
        found = [len(ids) for ids in Network(*paths).tokens(texts)]
    else:
        network = Network(*paths)
        found = [network.run(network.tokens([text]))[0].tolist() for text in texts]
    print("ROUNDHOUSE " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

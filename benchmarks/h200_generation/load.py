"""A streamed load over HTTP by several processes, and its numbers."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.h200_generation.engines import program

PROCESSES = 6


def run_load(options: Mapping[str, Any], *, processes: int = PROCESSES) -> dict[str, Any]:
    """Send `requests` requests, `concurrency` at once, and return the numbers of all streams.

    Raises ValueError when a stream was not complete.
    """
    return numbers(send_load(options, processes=processes))


def send_load(options: Mapping[str, Any], *, processes: int = PROCESSES) -> list[dict[str, Any]]:
    """Send a load, and return the answers that `programs.streams` describes."""
    count = max(1, min(processes, int(options["concurrency"])))
    with contextlib.ExitStack() as stack:
        clients = []
        for index in range(count):
            share = {
                **options,
                "seed": 1000 * int(options["seed"]) + index,
                "requests": _share(int(options["requests"]), count, index),
                "concurrency": _share(int(options["concurrency"]), count, index),
            }
            clients.append(stack.enter_context(program("streams", json.dumps(share))))
        for client in clients:
            client.read()
        for client in clients:
            client.send({})
        return [answer for client in clients for answer in client.read()]


def _share(total: int, count: int, index: int) -> int:
    return total // count + (index < total % count)


def overload_numbers(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return TTFT of the admitted and time to the answer of the refused, in milliseconds."""
    refused = [answer for answer in answers if answer["is_refused"]]
    admitted = [answer for answer in answers if not answer["is_refused"]]
    return {
        **numbers(admitted),
        "refused": len(refused),
        "refused_ms": percentiles([1000 * (item["last"] - item["begin"]) for item in refused]),
    }


def numbers(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rate and latency of streams. Raises ValueError when one was not complete.

    Output tokens a second from the first request's begin to the last stream's end; time to the
    first token and between two events in milliseconds; `tpot_ms`: (end - first token) / (tokens -
    1), of each stream.
    """
    faults = [answer["fault"] for answer in answers if answer["fault"]]
    if faults or not answers:
        first = faults[0] if faults else "none was sent"
        raise ValueError(f"{len(faults)} of {len(answers)} streams were not complete: {first}")
    seconds = max(item["last"] for item in answers) - min(item["begin"] for item in answers)
    tokens = sum(item["tokens"] for item in answers)
    gaps = [gap for item in answers for gap in item["gaps_ms"]]
    firsts = [1000 * (item["first"] - item["begin"]) for item in answers]
    each = [
        1000 * (item["last"] - item["first"]) / (item["tokens"] - 1)
        for item in answers
        if item["tokens"] > 1
    ]
    return {
        "seconds": round(seconds, 4),
        "requests": len(answers),
        "tokens": tokens,
        "output_tokens_per_second": round(tokens / seconds, 1),
        "events": sum(item["events"] for item in answers),
        "ttft_ms": percentiles(firsts),
        "itl_ms": percentiles(gaps),
        "tpot_ms": percentiles(each),
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return mean, p50, p95 and p99."""
    if len(values) < 2:
        return {"mean": round(sum(values), 3)}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    found = {"mean": statistics.fmean(values), "p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}
    return {name: round(value, 3) for name, value in found.items()}

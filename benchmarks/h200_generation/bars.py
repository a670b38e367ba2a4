"""`python -m benchmarks.h200_generation.bars PREDICTIONS OUT RUN …`: bars, from the runs' JSON.

Each run is one lease of a machine. Values are medians over all runs; `low` and `high` are the
lowest and highest of single measurements, of ratios those of single runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.h200_generation.formats import FORMATS
from benchmarks.measure import (
    Bar,
    Circumstances,
    Measure,
    at_least,
    at_most,
    of_rounds,
    table,
    with_command,
    write,
)

Run = Mapping[str, Any]
BATCHES = ("1", "16", "64", "256")
COMMAND = "python -m benchmarks.h200_generation FOLDER OUT"
RATES = {
    "8B BF16": "rates-bf16",
    "8B FP8, FP8 KV": "rates-fp8",
    **{f"8B {name}, stored": f"rates-{name}-stored" for name in FORMATS},
}
TOOLS = (
    ("TTFT", "mean_ttft_ms", ("time_to_first_token", "avg")),
    ("ITL", "mean_itl_ms", ("inter_chunk_latency", "avg")),
    ("goodput", "request_goodput", ("goodput", "avg")),
    ("output tokens/s", "output_throughput", ("output_token_throughput", "avg")),
)
"""A load tool's metrics: title, name in `vllm bench serve`, and in ours."""
BASELINE = "transformers generate, 8B BF16"


def measures(predictions: Mapping[str, Any], runs: Sequence[Run]) -> list[Measure]:
    """Return every measure that the runs have numbers for."""
    cases = predictions["cases"]
    found = [
        *_rates(runs), *_ratios(runs), *_estimates(cases, runs), *_caches(cases, runs),
        *_endpoint(runs), *_overload(runs), *_load_tools(runs),
    ]  # fmt: skip
    return with_command(COMMAND, found)


def _rates(runs: Sequence[Run]) -> Iterable[Measure]:
    for name, stage in {**RATES, BASELINE: "baseline"}.items():
        for batch in BATCHES:
            values = [value for run in runs for value in _batch(run, stage, batch)]
            bar = at_least(200) if (stage, batch) == ("rates-bf16", "1") else None
            if values:
                yield of_rounds(f"{name}, {batch} at once", values, "output tokens/s", bar)


def _ratios(runs: Sequence[Run]) -> Iterable[Measure]:
    def ratio(above: str, below: str, batch: str) -> Callable[[Run], float | None]:
        def value(run: Run) -> float | None:
            first, second = _batch(run, above, batch), _batch(run, below, batch)
            if not first or not second:
                return None
            return statistics.median(first) / statistics.median(second)

        return value

    def tokens(run: Run) -> float | None:
        try:
            return float(run["rates-fp8"]["kv_tokens"] / run["rates-bf16"]["kv_tokens"])
        except KeyError:
            return None

    bf16, fp8 = "rates-bf16", "rates-fp8"
    base, fast = "8B BF16 / transformers generate", "8B FP8 with FP8 KV / BF16"
    rows: list[tuple[str, Callable[[Run], float | None], Bar | None]] = [
        (f"{base}, 1 at once", ratio(bf16, "baseline", "1"), at_least(16)),
        (f"{base}, 64 at once", ratio(bf16, "baseline", "64"), at_least(5.5)),
        (f"{fast}, 1 at once", ratio(fp8, bf16, "1"), at_least(1.35)),
        (f"{fast}, 64 at once", ratio(fp8, bf16, "64"), at_least(1.4)),
        (f"{fast}, KV tokens", tokens, at_least(2)),
    ]
    for name in FORMATS:
        for batch in BATCHES:
            value = ratio(f"rates-{name}-stored", bf16, batch)
            rows.append((f"8B {name}, stored / BF16, {batch} at once", value, None))
    for name, value, bar in rows:
        values = [number for run in runs if (number := value(run)) is not None]
        if values:
            yield of_rounds(name, values, "x", bar)


def _estimates(cases: Mapping[str, Any], runs: Sequence[Run]) -> Iterable[Measure]:
    """Return how far the planner's rates of stored formats are from those measured."""
    for name in FORMATS:
        for batch in BATCHES:
            planned = cases.get(f"8b-{name}-stored-kv-bf16", {}).get("by_batch", {}).get(batch)
            rates = [_batch(run, f"rates-{name}-stored", batch) for run in runs]
            values = [planned / statistics.median(found) for found in rates if planned and found]
            if values:
                yield of_rounds(f"8B {name}, {batch} at once, planned / measured", values, "x")


def _caches(predictions: Mapping[str, Any], runs: Sequence[Run]) -> Iterable[Measure]:
    names = {"8b-bf16-kv-bf16": "rates-bf16", "8b-fp8-kv-fp8": "rates-fp8"}
    names |= {f"8b-{name}-stored-kv-bf16": f"rates-{name}-stored" for name in FORMATS}
    for name, prediction in predictions.items():
        reports = [
            run.get(names[name], {}) if name in names else run.get("caches", {}).get(name, {})
            for run in runs
        ]
        planned = prediction["kv_tokens"]
        errors = [
            100 * abs(planned / report["kv_tokens"] - 1)
            for report in reports
            if "kv_tokens" in report
        ]
        if errors:
            yield of_rounds(f"KV tokens planned against logged, {name}", errors, "%", at_most(2))


def _endpoint(runs: Sequence[Run]) -> Iterable[Measure]:
    for name, stage in (("8B BF16", "endpoint-bf16"), ("8B FP8, FP8 KV", "endpoint-fp8")):
        rounds = [item for run in runs for item in run.get(stage, {}).get("rounds", ())]
        values = [item["throughput"] for item in rounds]
        if values:
            yield of_rounds(f"{name}, vllm bench throughput", values, "output tokens/s")
        for leg, bar in (("endpoint", at_least(0.95)), ("engine", None)):
            of_all = [
                item[leg]["output_tokens_per_second"] / item["throughput"]
                for item in rounds
                if leg in item
            ]
            title = "our endpoint" if leg == "endpoint" else "vLLM's own server"
            if of_all:
                yield of_rounds(f"{name}, {title} / vllm bench throughput", of_all, "x", bar)


def _overload(runs: Sequence[Run]) -> Iterable[Measure]:
    rounds = [item for run in runs for item in run.get("overload", {}).get("rounds", ())]
    if not rounds:
        return
    firsts = [item["3"]["ttft_ms"]["p95"] / item["1"]["ttft_ms"]["p95"] for item in rounds]
    yield of_rounds("p95 TTFT of the admitted, 3 x the knee / knee", firsts, "x", at_most(1.3))
    for name in ("p50", "p99"):
        values = [item["3"]["refused_ms"][name] for item in rounds]
        yield of_rounds(f"{name} of a 503 at 3 x the knee", values, "ms", at_most(50))


def _load_tools(runs: Sequence[Run]) -> Iterable[Measure]:
    """Return our load tool, and vllm bench serve once more, against vllm bench serve."""
    tools = [
        item
        for run in runs
        for item in run.get("endpoint-bf16", {}).get("load_tools", ())
        if "again" in item
    ]
    for title, theirs, our in TOOLS:
        for name in ("ours", "again"):
            values = [
                (_metric(item["ours"], our) if name == "ours" else item["again"][theirs])
                / item["vllm"][theirs]
                for item in tools
            ]
            if values:
                other = "roundhouse bench" if name == "ours" else "vllm bench serve again"
                yield of_rounds(f"{title}, {other} / vllm bench serve", values, "x")


def _metric(phase: Mapping[str, Any], path: tuple[str, ...]) -> float:
    value: Any = phase["metrics"]
    for key in path:
        value = value[key]
    return float(value)


def _batch(run: Run, stage: str, batch: str) -> Sequence[float]:
    """Return rates; the first of a baseline without a document met new shapes, and is left out."""
    found = run.get(stage, {})
    values: Sequence[float] = found.get("by_batch", {}).get(batch, ())
    return values[1:] if stage == "baseline" and "document" not in found else values


def main(predictions: str, out: str, *runs: str) -> int:
    """Print and write the measures; 1 when a bar was missed."""
    documents = [json.loads(Path(name).read_text(encoding="utf-8")) for name in runs]
    found = measures(json.loads(Path(predictions).read_text(encoding="utf-8")), documents)
    today = Circumstances(machine=documents[0]["machine"], date=documents[-1]["date"])
    write(found, today, Path(out))
    Console(width=150).print(table(f"{len(runs)} runs, {today.machine}, {today.date}", found))
    return 0 if all(measure.verdict != "missed" for measure in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""`python -m benchmarks.gpu.page GPU.json CPU.json`: the tables of a run, as Markdown.

GPU.json: of `python -m benchmarks.gpu`; CPU.json: of `make bench`. The eight cells are sized and
priced by the code of `roundhouse compare`. Needs SciPy, as the environment of builds has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import kendalltau

from benchmarks.gpu.servers import FRAMEWORKS, TRITON, ablation
from onboarding.prices import price, prices_date
from roundhouse.measure.compare.result import CellResult, Knee, Report, State, ranked, table_of
from roundhouse.table import NOTHING, table

Rows = Sequence[Mapping[str, Any]]
BASE, LEAST_RATIO = "pytorch-single-x1", 19.0
SAFETY = 1.0
"""Of the scaling target, which the tables leave out."""
CPU_NAMES = {"minilm": "minilm", "vit": "vit-base", "bert-large-512": "bert-large"}
PAIRS = {
    ("PyTorch eager", "fp32"): ("PyTorch eager", "fp16"),
    ("torch.compile", "fp32"): ("torch.compile", "fp16"),
    ("ONNX Runtime", "fp32"): ("ONNX Runtime CUDA", "fp16"),
    ("ONNX Runtime", "int8 (dynamic)"): ("TensorRT", "int8"),
}
"""What stands for what: runtime and precision of the CPU, and of the GPU."""
CONTROL = " (duplicate control)"


def main(arguments: Sequence[str]) -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.page", description=__doc__)
    parser.add_argument("gpu", type=Path)
    parser.add_argument("cpu", type=Path)
    parser.add_argument("--slo-ms", type=float, default=50.0)
    parser.add_argument("--demand", type=float, default=10_000.0, help="requests a second")
    parser.add_argument("--instance-type", default="ml.p5.4xlarge")
    parser.add_argument("--region", default="us-east-1")
    chosen = parser.parse_args(arguments)
    gpu, cpu = (json.loads(path.read_text(encoding="utf-8")) for path in (chosen.gpu, chosen.cpu))
    print(f"{gpu['machine']}, {gpu['gpu']}, {gpu['date']}; {versions(gpu)}.")
    for name, rows in gpu["engines"].items():
        print(f"\n### {name}\n\n{engines_table(rows)}")
    print(f"\n### Servers\n\n{servers_table(gpu['servers'], chosen.slo_ms)}")
    print(f"\n### Ablation\n\n{ablation_text(report(gpu, chosen))}")
    print(
        f"\n### The order of the CPU and of the GPU\n\n{order_table(gpu['engines'], cpu['rows'])}"
    )


def versions(document: Mapping[str, Any]) -> str:
    """Return the packages that ran."""
    return ", ".join(f"{name} {version}" for name, version in document["versions"].items())


def engines_table(rows: Rows) -> str:
    """Return a row a runtime, with milliseconds of each batch, and reasons below."""
    found = [row for row in rows if "failed" not in row]
    batches = sorted({row["batch"] for row in found})
    columns = ["runtime", "precision"]
    columns += [f"{batch}: p50 (p99) ms" for batch in batches]
    columns += [f"{batches[-1]}: rows/s" if batches else "rows/s", "MiB", "worst cosine"]
    lines = []
    for key in dict.fromkeys((row["runtime"], row["precision"]) for row in found):
        if key[1].endswith(CONTROL):
            continue
        own = {row["batch"]: row for row in found if (row["runtime"], row["precision"]) == key}
        cells = list(key)
        cells += [f"{own[batch]['p50_ms']:.3g} ({own[batch]['p99_ms']:.3g})" for batch in batches]
        cells += [f"{1e3 * batches[-1] / own[batches[-1]]['p50_ms']:,.0f}"]
        memory = own[batches[0]]["device_mib"]
        cells += [NOTHING if memory is None else f"{memory:,.0f}"]
        cells += [f"{min(row['cosine_worst'] for row in own.values()):.5f}"]
        lines.append(cells)
    reasons = [
        f"- {row.get('runtime', '')} {row.get('precision', '')}: {row['failed']}"
        for row in rows
        if "failed" in row
    ]
    text = table(columns, lines, right=columns[2:]).markdown()
    return "\n".join([text, control_sentence(found), "", *reasons]).strip()


def control_sentence(rows: Rows) -> str:
    """Return how far two measurements of one runtime were apart."""
    twice: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        twice.setdefault((row["runtime"], row["precision"].removesuffix(CONTROL)), []).append(row)
    ratios = [
        second["p50_ms"] / first["p50_ms"]
        for same in twice.values()
        for second in same
        if second["precision"].endswith(CONTROL)
        for first in same
        if first["batch"] == second["batch"] and first is not second
    ]
    if not ratios:
        return ""
    return f"\nThe duplicate's p50 is {min(ratios):.2f} to {max(ratios):.2f} of the first's."


def slo_rate(rows: Rows, slo_ms: float) -> Mapping[str, Any] | None:
    """Return the row of the highest rate whose p99 is within the SLO; None where none is."""
    within = [row for row in rows if "failed" not in row and row["p99_ms"] <= slo_ms]
    return max(within, key=lambda row: float(row["requests_per_second"]), default=None)


def of_server(rows: Rows, name: str) -> list[Mapping[str, Any]]:
    """Return the rows of a server."""
    return [row for row in rows if row.get("server") == name]


def servers_table(rows: Rows, slo_ms: float) -> str:
    """Return requests a second, p50 and p99 of each server by its clients, and its SLO rate."""
    names = list(dict.fromkeys(row["server"] for row in rows if "server" in row))
    clients = sorted({row["clients"] for row in rows if "clients" in row})
    columns = ["server", *(f"{n} clients: requests/s (p50, p99 ms)" for n in clients)]
    columns += [f"SLO rate (p99 <= {slo_ms:g} ms)"]
    lines, reasons = [], []
    for name in sorted(names, key=lambda name: (name not in (TRITON, *FRAMEWORKS), name)):
        own = of_server(rows, name)
        reasons += [f"- {name}: {row['failed']}" for row in own if "failed" in row]
        by_clients = {row["clients"]: row for row in own if "p99_ms" in row}
        cells = [
            f"{row['requests_per_second']:,.0f} ({row['p50_ms']:.3g}, {row['p99_ms']:.3g})"
            if (row := by_clients.get(count)) is not None
            else NOTHING
            for count in clients
        ]
        best = slo_rate(own, slo_ms)
        rate = "none" if best is None else f"{best['requests_per_second']:,.0f}"
        lines.append([name, *cells, rate if by_clients else NOTHING])
    text = table(columns, lines, right=columns[1:]).markdown()
    return "\n".join([text, "", *reasons]).strip()


def report(gpu: Mapping[str, Any], chosen: argparse.Namespace) -> Report:
    """Return the ablation as a comparison, sized for a demand."""
    one = price(chosen.region, "hosting", chosen.instance_type)
    results = []
    for cell in ablation():
        own = of_server(gpu["servers"], cell.name)
        best = slo_rate(own, chosen.slo_ms)
        lone = next((row for row in own if row.get("clients") == 1 and "p99_ms" in row), None)
        shown = lone if best is None else best
        reason = "" if best else next((row["failed"] for row in own if "failed" in row), "missed")
        times = {f"p{n}_ms": None if shown is None else shown[f"p{n}_ms"] for n in (50, 95, 99)}
        rate = None if best is None else best["requests_per_second"]
        state = State.not_deployed if shown is None else State.measured
        results.append(
            CellResult(
                name=cell.name,
                values=cell.values,
                model="bert-large",
                instance_type=chosen.instance_type,
                state=state,
                reason=reason,
                runtime=dict(cell.values)["runtime"],
                precision="fp16",
                knee=None if shown is None else Knee(rate=rate, reason=reason, **times),
                date=gpu["date"],
            )
        )
    rows = (result.sized(chosen.demand, one, SAFETY) for result in results)
    return Report(
        model="bert-large",
        environment="benchmarks.gpu",
        region=chosen.region,
        slo_ms=chosen.slo_ms,
        demand=chosen.demand,
        rows=ranked(rows),
        machine=gpu["machine"],
        date=gpu["date"],
        prices_date=prices_date(chosen.region, [chosen.instance_type]),
        command="python -m benchmarks.gpu.page",
    )


def ablation_text(comparison: Report) -> str:
    """Return the comparison's table, and its best cell against the base."""
    rates = {row.name: row.rate for row in comparison.rows}
    best, base = comparison.best, rates[BASE]
    lines = [comparison.headline, "", table_of(comparison).markdown(), ""]
    if best is None or best.rate is None or base is None:
        return "\n".join([*lines, f"No ratio: {BASE} or every cell misses the SLO."])
    ratio = best.rate / base
    verdict = "held" if ratio >= LEAST_RATIO else "missed"
    bar = f"bar: at least {LEAST_RATIO:g} x, {verdict}"
    return "\n".join([*lines, f"{best.name} is {ratio:.1f} x {BASE} ({bar})."])


def order_table(engines: Mapping[str, Rows], cpu_rows: Rows) -> str:
    """Return Kendall's tau of both machines' rates, by network, small batch and large batch."""
    columns = ["network", "batch on the CPU, on the GPU", "runtimes", "tau"]
    lines = []
    for network, sizes, pairs in compared(engines, cpu_rows):
        tau = float(kendalltau(*zip(*pairs, strict=True)).statistic) if len(pairs) > 1 else None
        shown = NOTHING if tau is None else f"{tau:.2f}"
        lines.append([network, sizes, f"{len(pairs)}", shown])
    text = table(columns, lines, right=columns[2:]).markdown()
    listed = "; ".join(f"{a} {b} and {c} {d}" for (a, b), (c, d) in PAIRS.items())
    return f"{text}\n\nCompared: {listed}."


def compared(
    engines: Mapping[str, Rows], cpu_rows: Rows
) -> Iterator[tuple[str, str, list[tuple[float, float]]]]:
    """Yield network, batches, and the two rates of each runtime that ran on both machines."""
    for cpu_name, name in CPU_NAMES.items():
        rows = [row for row in engines.get(name, ()) if "failed" not in row]
        own = [row for row in cpu_rows if row["model"] == cpu_name and "failed" not in row]
        if not rows or not own:
            continue
        for choose in (min, max):
            batches = choose(row["batch"] for row in own), choose(row["batch"] for row in rows)
            rates = [
                {(row["runtime"], row["precision"]): 1 / row["p50_ms"] for row in side}
                for side in (
                    [row for row in own if row["batch"] == batches[0]],
                    [row for row in rows if row["batch"] == batches[1]],
                )
            ]
            pairs = [
                (rates[0][a], rates[1][b])
                for a, b in PAIRS.items()
                if a in rates[0] and b in rates[1]
            ]
            yield name, f"{batches[0]}, {batches[1]}", pairs


if __name__ == "__main__":
    main(sys.argv[1:])

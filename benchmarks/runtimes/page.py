"""`python -m benchmarks.runtimes.page`: docs/benchmarks/runtimes.md and its plots, from the JSON.

Several files of one machine are runs on different hosts: a cell shows the median of their values
and, in brackets, the span from their lowest to their highest interval.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from roundhouse.report import markdown_rows
from roundhouse.reports.charts import ROW_WIDTH, Row, element, row_chart, scale

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACHINES = {"h200": "An NVIDIA H200", "cpu": "Two cores of a CPU"}
MODELS = {
    "minilm": "MiniLM",
    "vit": "ViT-B/16",
    "bert-large-512": "BERT-large",
}
FIRST = ("PyTorch eager", "fp32")
CONTROL = "control"
BASE = ("PyTorch eager, FP32", False, 1)
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #586173; } .mine { font-weight: 600; }
.grid { stroke: #dfe3e9; } .whisker { stroke: #8a97a8; } .whisker.own { stroke: #0b63b8; }
.dot { fill: #8a97a8; } .dot.own { fill: #0b63b8; } .tick { font-size: 10px; }
"""
INTRO = """\
# How fast is each runtime, on the same inputs?

Generated from the JSON beside it: `python -m benchmarks.runtimes.page`; a test compares them. The
JSON is made by `python -m benchmarks.runtimes FOLDER OUT` ([how](../../benchmarks/h200/README.md)).

In every round each runtime runs the same batch once, in random order: host memory to host memory,
for servers one client's request and response, KServe's binary extension. p50 has its 95 % interval;
with several runs, it is the median of the runs and the span of their intervals. Rows a second: of a
runtime one batch after the other, of a server at saturation, three loads. Worst cosine: with
PyTorch eager in FP32, over the rows of the batch. The duplicate control is the first runtime again.

Texts are sentences of models/data (MiniLM), or several joined to 64 to 512 tokens, the first of a
batch 512 (BERT-large), padded to the longest of the batch. *Useful* is the share of tokens that are
no padding; of our server it is measured under the load, where it sorts waiting rows by length.
On the CPU, MiniLM has its trained weights. All other weights, and pixels, are random: their cosines
say what a precision does to numbers, not what it does to a trained model.
"""
ONE_CLIENT = """\
Where one client's time goes (BERT-large, our server's own metrics, means of four rounds): engine
0.98 ms, where 0.93 is the median of the engine alone; waiting beside it (padding, the turns of the
event loop) 0.11; tokenizing 0.10; JSON of 1,024 floats 0.05; decoding 0.02; HTTP, kernel and client
about 0.12. An event loop that polls for 500 us before it sleeps was tried and left out: 1.37 and
1.33 ms, against 1.37 and 1.36, and 1.31 and 1.32 of the duplicate.
"""
SPEED = "test_server_speed.py::"
TENSORRT = """\
## The Python server before a TensorRT plan, an H100

Rows of `tests/gpu/test_server_speed.py` (`make test-gpu`): BERT-large in FP16, random weights,
texts of 128 tokens. Each round measures every point once, in random order: median (lowest to
highest) of three. One client: one text a request, one HTTP process. Saturated: 32 connections of
eight client processes, 16 texts a request, four HTTP processes. PyTorch in FP16, with its fused
attention.
"""
SHOWN = ("engine alone", "duplicate control", "one client")
COLUMNS = (
    *("batch", "runtime", "precision", "p50 ms", "p99 ms"),
    *("rows/s", "useful", "useful tokens/s", "worst cosine"),
)


def main() -> None:
    """Write the page and its plots."""
    for path, text in files(DOCS).items():
        path.write_text(text, encoding="utf-8")


def files(docs: Path) -> dict[Path, str]:
    """Return the page and its plots, by path."""
    pages, parts = {}, [INTRO]
    for machine, title in MACHINES.items():
        documents = read(docs, f"runtimes-{machine}")
        if not documents:
            continue
        groups = group_rows(documents)
        pages[docs / "images" / f"runtimes-{machine}.svg"] = plot(title, groups)
        parts.append(_section(title, machine, documents, groups))
    parts += [_slo(read(docs, "slo-h200")), _servers(docs)]
    if tier_rows := rows_of_the_gpu_tier(docs):
        parts.append(tensorrt_section(tier_rows))
    pages[docs / "benchmarks" / "runtimes.md"] = "\n".join(parts)
    return pages


def read(docs: Path, name: str) -> list[Any]:
    """Return the JSON of each run of a benchmark."""
    paths = sorted((docs / "benchmarks").glob(f"{name}-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


Key = tuple[str, int, str, str]
"""Model, batch, runtime, precision."""


def group_rows(documents: Sequence[Mapping[str, Any]]) -> dict[Key, list[dict[str, Any]]]:
    """Return the rows of every run by what was measured; failed ones under batch 0."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for document in documents:
        for row in document["rows"]:
            key = (row["model"], row.get("batch", 0), row.get("runtime", ""), row["precision"])
            groups.setdefault(key, []).append(row)
    order = list(MODELS)
    return dict(sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def _section(
    title: str,
    machine: str,
    documents: Sequence[Mapping[str, Any]],
    groups: Mapping[Key, Sequence[Mapping[str, Any]]],
) -> str:
    first = documents[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    dates = ", ".join(sorted({document["date"] for document in documents}))
    machines = "; ".join(sorted({document["machine"] for document in documents}))
    what = f"{len(documents)} run{'s' if len(documents) > 1 else ''}, {dates}: {machines}"
    gpu = "" if first["gpu"] is None else f", {first['gpu']}"
    lines = [
        f"## {title}\n",
        f"{what}{gpu};\n{versions}.{_trained(groups)}\n",
        f"![times as fast as PyTorch eager FP32](../images/runtimes-{machine}.svg)",
    ]
    for model, name in MODELS.items():
        own = [cells(key, rows) for key, rows in groups.items() if key[0] == model]
        if own:
            lines += [f"\n### {name}\n", *markdown_rows(COLUMNS, own)]
    return "\n".join(lines) + "\n"


def _trained(groups: Mapping[Key, Sequence[Mapping[str, Any]]]) -> str:
    """Return a sentence on the models whose weights are not random."""
    names = {MODELS[key[0]] for key, rows in groups.items() if rows[0].get("weights") == "trained"}
    return f" The weights of {', '.join(sorted(names))} are trained here." if names else ""


def cells(key: Key, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row of its model's table."""
    _, batch, runtime, precision = key
    if not batch:
        return ["", runtime, precision, rows[0]["failed"], *[""] * 5]
    tokens = rows[0]["padded_tokens"]
    shape = f"{batch}" if tokens is None else f"{batch} x {tokens // batch}"
    rate, useful = _median(rows, "rows_per_second"), useful_share(rows)
    per_row = rows[0].get("useful_tokens_per_row")
    if per_row is None and tokens is not None:
        per_row = rows[0]["useful_tokens"] / batch
    return [
        shape,
        f"**{runtime}**" if runtime == "our server" else runtime,
        precision.replace(f" (duplicate {CONTROL})", f", duplicate {CONTROL}"),
        _with_span(rows, "p50_ms", "p50_interval"),
        digits(_median(rows, "p99_ms")),
        _with_span(rows, "rows_per_second", "rows_per_second_interval"),
        "" if useful is None else f"{useful:.2f}",
        "" if per_row is None or useful is None else digits(rate * per_row),
        f"{min(row['cosine_worst'] for row in rows):.6f}",
    ]


def useful_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of tokens that are no padding; None for images and where nothing counts."""
    if rows[0]["padded_tokens"] is None:
        return None
    if "clients" in rows[0]:
        shares = [row["useful_share"] for row in rows if row["useful_share"] is not None]
        return statistics.median(shares) if shares else None
    return float(rows[0]["useful_tokens"] / rows[0]["padded_tokens"])


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(float(row[name]) for row in rows)


def _with_span(rows: Sequence[Mapping[str, Any]], name: str, interval: str) -> str:
    low, high = min(row[interval][0] for row in rows), max(row[interval][1] for row in rows)
    return f"{digits(_median(rows, name))} ({digits(low)} to {digits(high)})"


def digits(value: float) -> str:
    """Format with three digits, and commas between thousands."""
    if value >= 100:
        power = 10 ** max(0, len(str(round(value))) - 3)
        return f"{round(value / power) * power:,}"
    return f"{value:.3g}"


def plot(title: str, groups: Mapping[Key, Sequence[Mapping[str, Any]]]) -> str:
    """Return the SVG: p50 of PyTorch eager FP32 over each runtime's, spans over the runs."""
    rows = []
    for (model, batch, runtime, precision), own in groups.items():
        first = groups.get((model, batch, *FIRST), ())
        if not batch or CONTROL in precision or (runtime, precision) == FIRST:
            continue
        ratios = [one["p50_ms"] / row["p50_ms"] for one, row in zip(first, own, strict=True)]
        low, value, high = min(ratios), statistics.median(ratios), max(ratios)
        spread = "" if len(ratios) == 1 else f" ({low:.1f} to {high:.1f})"
        tokens = own[0]["padded_tokens"]
        shape = f"{batch}" if tokens is None else f"{batch} x {tokens // batch}"
        name = f"{MODELS[model]} {shape}, {runtime} {precision}"
        label, ours = f"{value:.1f}{spread}", runtime == "our server"
        rows.append(Row(name=name, value=value, label=label, low=low, high=high, own=ours))
    most = max((row.high or row.value for row in rows), default=1.0)
    chart = row_chart(
        f"{title}: times as fast as PyTorch eager FP32, p50",
        rows,
        scale(0.0, most, 6.0, ROW_WIDTH - 6.0),
        bars=False,
    )
    view = str(chart).partition('viewBox="')[2].partition('"')[0]
    return (
        element(
            "svg",
            element("style", Markup(STYLE)),
            element("rect", width=ROW_WIDTH, height=float(view.split()[3]), fill="#ffffff"),
            chart,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=view,
            role="img",
        )
        + "\n"
    )


def _slo(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the eight cells of BERT-large."""
    rates: dict[tuple[str, bool, int], list[float | None]] = {}
    for document in documents:
        for cell in document["cells"]:
            key = (cell["runtime"], cell["batching"], cell["instances"])
            rates.setdefault(key, []).append(cell["requests_per_second_at_slo"])
    base = rates[BASE]
    lines = [
        "## Requests a second at the SLO: BERT-large, 512 tokens, an H200\n",
        "`python -m benchmarks.h200.slo`: every text has 512 tokens, every cell is our server with",
        "four HTTP processes; closed loop, the best rate of a ladder of 2 to 512 connections whose",
        f"p99 is at most {documents[0]['slo_ms']:.0f} ms, in {len(documents)} runs. Base runs one",
        "text at a time; two instances are two servers on one GPU, which one server fills already.",
        "Bar: the best cell at least 6.5 x PyTorch's base, as in the",
        "[published ablation](README.md#inference-recommenders-ablation-as-published).\n",
        "| cell | requests/s at the SLO, each run | x PyTorch base |",
        "|---|---|---|",
    ]
    order = sorted(rates, key=lambda key: (not key[0].startswith("PyTorch"), *key[1:]))
    for runtime, batching, instances in order:
        values = rates[runtime, batching, instances]
        words = f"{'batching' if batching else 'base'}, {instances} instance"
        ratios = [value / one for value, one in zip(values, base, strict=True) if value and one]
        times = " and ".join(f"{ratio:.1f}" for ratio in ratios) or "none"
        own = " and ".join("none" if value is None else digits(value) for value in values)
        lines.append(f"| {runtime}; {words}{'s' if instances > 1 else ''} | {own} | {times} |")
    return "\n".join(lines) + "\n"


def rows_of_the_gpu_tier(docs: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return (machine and date, row) of the tier's rows of the Python server's speed."""
    found = []
    for path in sorted((docs / "benchmarks" / "h100").glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        for row in report.get("rows", ()):
            if SPEED in row["row"] and row["outcome"] != "not run":
                run = f"{report['gpu']}, TensorRT {report['tensorrt']}, {report['date'][:10]}"
                found.append((run, row))
    return found


def tensorrt_section(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return what each row measured in each run; a failed one says so."""
    lines = [
        TENSORRT,
        *(f"- run {number}: {run}" for number, run in enumerate(_runs(rows), start=1)),
        "\n| row | figure | " + " | ".join(f"run {i + 1}" for i in range(len(_runs(rows)))) + " |",
        "|" + "---|" * (2 + len(_runs(rows))),
    ]
    values: dict[tuple[str, str], dict[str, str]] = {}
    for run, row in rows:
        name = row["row"].rpartition("::")[2].removeprefix("test_").replace("_", " ")
        failed = " **failed**" if row["outcome"] == "fail" else ""
        for figure, value in row["figures"].items():
            parts = value.items() if _is_nested(value) else [("", value)]
            for part, number in parts:
                words = f"{figure} {part}".strip().replace("_", " ")
                values.setdefault((name, words), {})[run] = f"{_figure(number)}{failed}"
    for (name, words), by_run in values.items():
        shown = " | ".join(by_run.get(run, "") for run in _runs(rows))
        lines.append(f"| {name} | {words} | {shown} |")
    return "\n".join(lines) + "\n"


def _runs(rows: Sequence[tuple[str, Any]]) -> list[str]:
    return list(dict.fromkeys(run for run, _ in rows))


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping) and "median" not in value


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{digits(value['median'])} ({digits(value['low'])} to {digits(value['high'])})"
    return digits(value) if isinstance(value, float | int) else f"{value}"


def _servers(docs: Path) -> str:
    """Return our server against its engine alone, every run's rounds."""
    lines = [
        "## Our server against its engine alone, an H200\n",
        "`python -m benchmarks.h200.experiment`: sentences of models/data (mean 12 words), wrk on",
        "the host's upper eight cores, ONNX Runtime with CUDA graphs in FP16. Median and span of",
        "the rounds of each run; the JSON has the other loads. Hosts differ: PyTorch eager, which",
        "waits for its host, was 1.9 times as fast in the first run as in the second.\n",
        "| measure | bar | each run |",
        "|---|---|---|",
    ]
    for model in ("bert-large", "minilm"):
        by_name: dict[str, list[dict[str, Any]]] = {}
        for document in read(docs, f"servers-{model}-h200"):
            for measure in document:
                by_name.setdefault(measure["name"], []).append(measure)
        for name, measures in by_name.items():
            if measures[0]["bar"] is None and not any(word in name for word in SHOWN):
                continue
            values = "; ".join(
                f"{digits(one['value'])} ({digits(one['low'])} to {digits(one['high'])})"
                f"{' **missed**' if one['verdict'] == 'missed' else ''}"
                for one in measures
            )
            unit = measures[0]["unit"]
            lines.append(f"| {name}, {unit} | {measures[0]['bar'] or ''} | {values} |")
    return "\n".join([*lines, "", ONE_CLIENT])


if __name__ == "__main__":
    main()

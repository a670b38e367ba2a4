"""`python -m benchmarks.runtimes.page`: docs/benchmarks/runtimes.md, from the JSON beside it.

Several files of one machine are runs on different hosts: a cell shows the median of their values
and, in brackets, the span from their lowest to their highest interval.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roundhouse.report import markdown_rows

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACHINES = {"h200": "An NVIDIA H200", "cpu": "Two cores of a CPU"}
MODELS = {
    "minilm": "MiniLM",
    "vit": "ViT-B/16",
    "bert-large-512": "BERT-large",
}
CONTROL = "control"
INTRO = """\
# How fast is each runtime, on the same inputs?

Generated from the JSON beside it: `python -m benchmarks.runtimes.page`; a test compares them. The
JSON is made by `make bench BENCH=runtimes`, or `python -m benchmarks.runtimes FOLDER OUT`.

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
MARK = "<!-- Below: not generated. The programs are gone, their JSON stands beside this page. -->"
COLUMNS = (
    *("batch", "runtime", "precision", "p50 ms", "p99 ms"),
    *("rows/s", "useful", "useful tokens/s", "worst cosine"),
)


def main() -> None:
    """Write the page."""
    path = DOCS / "benchmarks" / "runtimes.md"
    path.write_text(page(DOCS, path.read_text(encoding="utf-8")), encoding="utf-8")


def page(docs: Path, written: str) -> str:
    """Return the page, which keeps what stands below the mark of the one that is written."""
    parts = [INTRO]
    for machine, title in MACHINES.items():
        if documents := read(docs, f"runtimes-{machine}"):
            parts.append(_section(title, documents, group_rows(documents)))
    return "\n".join([*parts, MARK + written.partition(MARK)[2]])


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
        f"{what}{gpu};\n{versions}.{_trained(groups)}",
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


if __name__ == "__main__":
    main()

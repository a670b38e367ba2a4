"""`python -m benchmarks.runtimes.page`: the tables of docs/benchmarks/README.md, from its JSON.

Several files of one machine are runs on different hosts: a cell shows the median of their values
and, in brackets, the span from their lowest to their highest interval.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roundhouse.table import Table, table

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACHINES = {"h200": "An NVIDIA H200", "cpu": "Two cores of a CPU"}
MODELS = {
    "minilm": "MiniLM",
    "vit": "ViT-B/16",
    "bert-large-512": "BERT-large",
}
LEFT_OUT = {"cpu": ("vit", "bert-large-512")}
"""What stands in the JSON alone: nobody serves these on two cores."""
CONTROL = "control"
BLOCK = re.compile(r"(<!-- runtimes: generated -->\n)(.*?)(<!-- end of runtimes -->)", re.DOTALL)
"""What is written anew; the rest of the page is kept."""


def main() -> None:
    """Write the tables into the page."""
    path = DOCS / "benchmarks" / "README.md"
    path.write_text(page(DOCS, path.read_text(encoding="utf-8")), encoding="utf-8")


def page(docs: Path, written: str) -> str:
    """Return the page with the tables as the JSON has them now."""
    parts = [
        _section(title, documents, group_rows(documents, LEFT_OUT.get(machine, ())))
        for machine, title in MACHINES.items()
        if (documents := read(docs, f"runtimes-{machine}"))
    ]
    return BLOCK.sub(lambda block: "\n".join([block[1], *parts, block[3]]), written)


def read(docs: Path, name: str) -> list[Any]:
    """Return the JSON of each run of a benchmark."""
    paths = sorted((docs / "benchmarks").glob(f"{name}-*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


Key = tuple[str, int, str, str]
"""Model, batch, runtime, precision."""


def group_rows(
    documents: Sequence[Mapping[str, Any]], without: Sequence[str] = ()
) -> dict[Key, list[dict[str, Any]]]:
    """Return the rows of every run by what was measured; failed ones under batch 0."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for document in documents:
        for row in document["rows"]:
            key = (row["model"], row.get("batch", 0), row.get("runtime", ""), row["precision"])
            if row["model"] not in without:
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
        f"### {title}\n",
        f"{what}{gpu};\n{versions}.{_trained(groups)} {_control(groups)}",
    ]
    for model, name in MODELS.items():
        own = {key[1:]: rows for key, rows in groups.items() if key[0] == model}
        if own:
            lines += ["", model_table(name, own).markdown()]
    return "\n".join(lines) + "\n"


def _is_control(key: Key) -> bool:
    return CONTROL in key[3]


def _control(groups: Mapping[Key, Sequence[Mapping[str, Any]]]) -> str:
    """Return a sentence on how far two measurements of one runtime lie apart."""
    ratios = [
        _median(rows, "p50_ms") / _median(groups[(*key[:3], key[3].split(" (")[0])], "p50_ms")
        for key, rows in groups.items()
        if _is_control(key)
    ]
    if not ratios:
        return ""
    return f"The duplicate's p50 is {min(ratios):.2f} to {max(ratios):.2f} of the first's."


def _trained(groups: Mapping[Key, Sequence[Mapping[str, Any]]]) -> str:
    """Return a sentence on the models whose weights are not random."""
    names = {MODELS[key[0]] for key, rows in groups.items() if rows[0].get("weights") == "trained"}
    return f" The weights of {', '.join(sorted(names))} are trained here." if names else ""


def model_table(
    name: str, groups: Mapping[tuple[int, str, str], Sequence[Mapping[str, Any]]]
) -> Table:
    """Return a model's table: a row for each runtime, without controls."""
    batches = sorted({batch for batch, _, _ in groups if batch})
    shapes = {batch: _shape(groups, batch) for batch in batches}
    columns = [name, "precision"]
    columns += [text for batch in batches for text in (f"{shapes[batch]}: p50 ms", "rows/s")]
    found = []
    for runtime, precision in dict.fromkeys(key[1:] for key in groups if CONTROL not in key[2]):
        row = [f"**{runtime}**" if runtime == "our server" else runtime, precision]
        worst: list[float] = []
        for batch in batches:
            runs = groups.get((batch, runtime, precision), ())
            rate = digits(_median(runs, "rows_per_second")) if runs else "–"
            row += [_with_span(runs) if runs else "–", rate]
            worst += [run["cosine_worst"] for run in runs]
        failed = groups.get((0, runtime, precision))
        found.append([*row, str(failed[0]["failed"]) if failed else f"{min(worst):.4f}"])
    return table([*columns, "worst cosine"], found)


def _shape(groups: Mapping[tuple[int, str, str], Sequence[Mapping[str, Any]]], batch: int) -> str:
    """Return a batch as rows and, of texts, tokens of each."""
    tokens = next(rows[0]["padded_tokens"] for key, rows in groups.items() if key[0] == batch)
    return f"{batch}" if tokens is None else f"{batch} x {tokens // batch}"


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.median(float(row[name]) for row in rows)


def _with_span(rows: Sequence[Mapping[str, Any]]) -> str:
    low = min(row["p50_interval"][0] for row in rows)
    high = max(row["p50_interval"][1] for row in rows)
    return f"{digits(_median(rows, 'p50_ms'))} ({digits(low)} to {digits(high)})"


def digits(value: float) -> str:
    """Format with three digits, and commas between thousands."""
    if value >= 100:
        power = 10 ** max(0, len(str(round(value))) - 3)
        return f"{round(value / power) * power:,}"
    return f"{value:.3g}"


if __name__ == "__main__":
    main()

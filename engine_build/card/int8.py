"""The engine card's INT8 section: what is in INT8, what is not and why, what more would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_build.card.charts import Axis, Frame, Line, Mark, axis, line_chart, scale
from engine_build.card.facts import CardFacts
from engine_build.card.formats import Cells, Markup, columns, percent, score
from onboarding.manifest import QuantizationRecord

SEARCH = "search"
"""The split of samples that the charts of the sensitivity search are of."""
FRONTIER_SCORES = {
    "mean": "Mean score",
    "worst": "Worst sample",
    "nearest_neighbour_agreement": "Nearest neighbour",
}
FRONTIER = Frame(width=360, height=236, left=44, right=352, top=14, bottom=192)


def int8_values(facts: CardFacts) -> dict[str, Any]:
    """Return what the template shows of the INT8 network; nothing when none was made."""
    record = facts.manifest.quantization
    if record is None:
        return {}
    named = {str(layer["node"]) for layer in facts.layers}
    has_costs = any(layer.get("drift") is not None for layer in facts.layers)

    def layer_tables(badge: Markup, code: Markup) -> list[tuple[str, Any]]:
        rows = [(layer, (_layer_cells(layer, has_costs, badge, code), False)) for layer in layers]
        in_float = [row for layer, row in rows if not layer["int8"]]
        title = f"The {len(in_float)} weighted layers that stay in float, and why"
        tables = [(title, in_float)] if in_float else []
        whole = (f"All {len(rows)} weighted layers", [row for _, row in rows])
        return [*tables, whole] if rows else []

    layers = facts.layers
    numbers = "share of work|drift alone|mean alone" if has_costs else "share of work"
    return {
        "int8_summary": f"{_int8_share(record)}; {record.mode} mode, {record.method} calibration "
        f"on {record.samples} samples. {_int8_use(facts)}",
        "frontier_charts": _frontier_charts(facts),
        "frontier_columns": columns(
            "", "share in INT8|INT8 layers|mean|worst|same nearest neighbour", "judged on|"
        ),
        "frontier_rows": [
            (_frontier_cells(point), bool(point["chosen"])) for point in reversed(facts.frontier)
        ],
        "layer_columns": [*columns("layer|operator", numbers, "kept in"), ("why", "words")],
        "layer_tables": layer_tables,
        "other_float_layers": [name for name in record.float_layers if name not in named],
    }


def _int8_share(record: QuantizationRecord) -> str:
    if record.int8_share_of_matmul_macs is None:
        return "TensorRT chose the layers that are in INT8"
    tokens = "" if record.share_at_sequence is None else f" at {record.share_at_sequence} tokens"
    layers = "" if record.int8_layers is None else f", in {record.int8_layers} layers"
    share = percent(record.int8_share_of_matmul_macs)
    return f"{share} of the multiply-accumulates{tokens} are in INT8{layers}"


def _int8_use(facts: CardFacts) -> str:
    if facts.manifest.precision != "int8":
        return "The published engine is not made of it."
    if facts.manifest.runtime.name == "tensorrt":
        return "The published plan runs it."
    return (
        "The published engine is not made of it, but of the float network by ONNX Runtime's "
        "dynamic quantization, which is the faster one on a CPU; a GPU's INT8 plan is compiled "
        "from this one."
    )


def _frontier_charts(facts: CardFacts) -> list[tuple[str, str]]:
    points = [point for point in facts.frontier if point.get("split", SEARCH) == SEARCH]
    accuracy = facts.manifest.accuracy
    budgets: Mapping[str, float | None] = (
        {"mean": accuracy[-1].budget_mean, "worst": accuracy[-1].budget_worst} if accuracy else {}
    )
    return [
        (_frontier_caption(title, points, name), frontier_chart(title, points, name, budgets))
        for name, title in FRONTIER_SCORES.items()
        if points and all(point.get(name) is not None for point in points)
    ]


def _frontier_caption(title: str, points: Sequence[Mapping[str, Any]], name: str) -> str:
    chosen = next((point for point in points if point["chosen"]), None)
    if chosen is None:
        return title
    label = percent if name == "nearest_neighbour_agreement" else score
    return f"{title}: {label(float(chosen[name]))} at {percent(float(chosen['share']))}"


def frontier_chart(
    title: str, points: Sequence[Mapping[str, Any]], name: str, budgets: Mapping[str, float | None]
) -> str:
    """Return a chart of an accuracy against the share of INT8 multiply-accumulates."""
    budget = budgets.get(name)
    places = [(float(point["share"]), float(point[name])) for point in points]
    chosen = [place for place, point in zip(places, points, strict=True) if point["chosen"]]
    values = [value for _, value in places] + ([] if budget is None else [budget])
    shares = scale(places[0][0], 1.0, FRONTIER.left, FRONTIER.right, most=1.0)
    scores = scale(min(values), max(values), FRONTIER.bottom, FRONTIER.top, most=1.0)
    marks = [Mark(value=share, label="", kind="drop", upright=True) for share, _ in chosen]
    if budget is not None:
        below = scores(budget) < (FRONTIER.top + FRONTIER.bottom) / 2
        marks.append(Mark(value=budget, label="budget", kind="budget", at_left=True, below=below))
    lines = (
        Line(name=title, points=places, kind="path", radius=4),
        Line(name="chosen", points=chosen, kind="own", radius=6.5, joined=False),
    )
    across: Axis = axis(shares, "share of multiply-accumulates in INT8", lambda v: f"{v:.0%}")
    return line_chart(title, lines, FRONTIER, across, axis(scores), marks)


def _frontier_cells(point: Mapping[str, Any]) -> Cells:
    share, layers = point.get("nearest_neighbour_agreement"), point["int8_layers"]
    return (
        percent(float(point["share"])),
        layers if isinstance(layers, int) else len(layers),
        score(float(point["mean"])),
        score(float(point["worst"])),
        "–" if share is None else percent(float(share)),
        f"the {point.get('split', SEARCH)} split",
        "chosen" if point["chosen"] else "",
    )


def _layer_cells(layer: Mapping[str, Any], has_costs: bool, badge: Markup, code: Markup) -> Cells:
    drift, mean = layer.get("drift"), layer.get("mean")
    costs = ("–" if drift is None else f"{drift:.2e}", "–" if mean is None else score(float(mean)))
    return (
        code(str(layer["node"])),
        str(layer.get("operator", "")),
        percent(float(layer["share"])),
        *(costs if has_costs else ()),
        badge("int8" if layer["int8"] else "float"),
        str(layer.get("why", "")),
    )

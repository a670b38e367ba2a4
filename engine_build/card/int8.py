"""The engine card's INT8 section: what is in INT8, what is not and why, what more would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_build.card.charts import Axis, Frame, Line, Mark, axis, line_chart, scale
from engine_build.card.facts import CardFacts
from engine_build.card.formats import DASH, Column, percent, score, table
from engine_build.card.render import macro
from onboarding.manifest import QuantizationRecord

badge, code = macro("badge"), macro("code")
SEARCH = "search"
"""The split of samples that the charts of the sensitivity search are of."""
FRONTIER_SCORES = {
    "mean": "Mean score",
    "worst": "Worst sample",
    "nearest_neighbour_agreement": "Nearest neighbour",
}
POINTS: tuple[Column, ...] = (
    ("share in INT8", "number", lambda p: percent(float(p["share"]))),
    ("INT8 layers", "number", lambda p: _count(p["int8_layers"])),
    ("mean", "number", lambda p: score(float(p["mean"]))),
    ("worst", "number", lambda p: score(float(p["worst"]))),
    ("same nearest neighbour", "number", lambda p: percent(p.get("nearest_neighbour_agreement"))),
    ("judged on", "", lambda p: f"the {p.get('split', SEARCH)} split"),
    ("", "", lambda p: "chosen" if p["chosen"] else ""),
)
COSTS: tuple[Column, ...] = (
    ("drift alone", "number", lambda layer: _drift(layer.get("drift"))),
    ("mean alone", "number", lambda layer: score(layer.get("mean"))),
)
LAYERS: tuple[Column, ...] = (
    ("layer", "", lambda layer: code(str(layer["node"]))),
    ("operator", "", lambda layer: str(layer.get("operator", ""))),
    ("share of work", "number", lambda layer: percent(float(layer["share"]))),
    *COSTS,
    ("kept in", "", lambda layer: badge("int8" if layer["int8"] else "float")),
    ("why", "words", lambda layer: str(layer.get("why", ""))),
)
FRONTIER = Frame(width=360, height=236, left=44, right=352, top=14, bottom=192)


def _count(layers: int | list[str]) -> int:
    return layers if isinstance(layers, int) else len(layers)


def _drift(value: float | None) -> str:
    return DASH if value is None else f"{value:.2e}"


def int8_values(facts: CardFacts) -> dict[str, Any]:
    """Return what the template shows of the INT8 network; nothing when none was made."""
    record = facts.manifest.quantization
    if record is None:
        return {}
    weighted = {str(layer["node"]) for layer in facts.layers}
    has_costs = any(layer.get("drift") is not None for layer in facts.layers)
    columns = [column for column in LAYERS if has_costs or column not in COSTS]
    in_float = [layer for layer in facts.layers if not layer["int8"]]
    titled = [
        (f"The {len(in_float)} weighted layers that stay in float, and why", in_float),
        (f"All {len(facts.layers)} weighted layers", facts.layers),
    ]
    return {
        "int8_summary": f"{_int8_share(record)}; {_origin(record)}. {_int8_use(facts)}",
        "frontier_charts": _frontier_charts(facts),
        "frontier_table": table(POINTS, reversed(facts.frontier), lambda p: bool(p["chosen"])),
        "layer_tables": [(title, table(columns, layers)) for title, layers in titled if layers],
        "other_float_layers": [name for name in record.float_layers if name not in weighted],
    }


def _origin(record: QuantizationRecord) -> str:
    if record.mode == "source":
        return "the source network's own Q/DQ nodes, kept as they are"
    if record.mode == "dynamic":
        return (
            "ONNX Runtime's dynamic quantization of the float network: each batch sets the ranges"
        )
    return f"{record.mode} mode, {record.method} calibration on {record.samples} samples"


def _int8_share(record: QuantizationRecord) -> str:
    if record.mode == "dynamic":
        return f"{record.int8_layers} layers are in INT8"
    if record.int8_share_of_matmul_macs is None:
        return "TensorRT chose the layers that are in INT8"
    tokens = "" if record.share_at_sequence is None else f" at {record.share_at_sequence} tokens"
    layers = "" if record.int8_layers is None else f", in {record.int8_layers} layers"
    share = percent(record.int8_share_of_matmul_macs)
    return f"{share} of the multiply-accumulates{tokens} are in {record.precision.upper()}{layers}"


def _int8_use(facts: CardFacts) -> str:
    record = facts.manifest.quantization
    if record is None or facts.manifest.precision != record.precision:
        return "The published engine is not made of it."
    if facts.manifest.runtime.name == "tensorrt":
        return "The published plan runs it."
    return "The published engine is it, in ONNX Runtime."


def _frontier_charts(facts: CardFacts) -> list[tuple[str, str]]:
    points = [point for point in facts.frontier if point.get("split", SEARCH) == SEARCH]
    accuracy = facts.manifest.accuracy_records
    budgets: Mapping[str, float | None] = {}
    if accuracy:
        budgets = {
            "mean": accuracy[-1].budget_mean,
            "worst": accuracy[-1].budget_worst,
            "nearest_neighbour_agreement": accuracy[-1].budget_neighbours,
        }
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

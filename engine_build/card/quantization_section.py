"""Which layers are in INT8, which are not and why, and what more INT8 would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_build.card import words
from engine_build.card.facts import CardFacts
from engine_build.card.frontier_chart import FrontierPoint, frontier_chart
from engine_build.card.markup import Markup, element
from engine_build.card.table import Column, Line, code, figure, folded, section, table
from onboarding.manifest import QuantizationRecord

SEARCH = "search"
"""The split that the charts are of."""
SCORES = {
    "mean": "Mean score",
    "worst": "Worst sample",
    "nearest_neighbour_agreement": "Nearest neighbour",
}
FRONTIER = (
    "Each point is a network that the sensitivity search measured on samples of its own; layers leave INT8 in the order of what "
    "they cost for their work. The chosen network is judged again above, on samples that neither search nor calibration saw."
)


def quantization_section(facts: CardFacts) -> Markup:
    """Empty when no INT8 network was made."""
    record = facts.manifest.quantization
    if record is None:
        return Markup("")
    note = f"{_share(record)}; {record.mode} mode, {record.method} calibration on {record.samples} samples. {_use(facts)}"
    return section("INT8", _frontier(facts), _layers(facts), _float_layers(facts), note=note)


def _share(record: QuantizationRecord) -> str:
    """How much of the work is in INT8."""
    if record.int8_share_of_matmul_macs is None:
        return "TensorRT chose the layers that are in INT8"
    tokens = "" if record.share_at_sequence is None else f" at {record.share_at_sequence} tokens"
    layers = "" if record.int8_layers is None else f", in {record.int8_layers} layers"
    return f"{words.percent(record.int8_share_of_matmul_macs)} of the multiply-accumulates{tokens} are in INT8{layers}"


def _use(facts: CardFacts) -> str:
    """What became of the INT8 network."""
    if facts.manifest.precision != "int8":
        return "The published engine is not made of it."
    if facts.manifest.runtime.name == "tensorrt":
        return "The published plan runs it."
    return (
        "The published engine is not made of it, but of the float network by ONNX Runtime's dynamic quantization, which is the "
        "faster one on a CPU; a GPU's INT8 plan is compiled from this one."
    )


def _frontier(facts: CardFacts) -> Markup:
    points = facts.frontier
    if not points:
        return Markup("")
    own = facts.manifest.accuracy[-1] if facts.manifest.accuracy else None
    budgets = {} if own is None else {"mean": own.budget_mean, "worst": own.budget_worst}
    searched = [point for point in points if point.get("split", SEARCH) == SEARCH]
    charts = [
        figure(
            _captioned(title, searched, score),
            frontier_chart(title, _drawn(searched, score), budget=budgets.get(score)),
        )
        for score, title in SCORES.items()
        if searched and all(point.get(score) is not None for point in searched)
    ]
    return element(
        "div",
        element("div", charts, class_="charts"),
        element("p", FRONTIER, class_="legend"),
        folded(f"All {len(points)} measured networks", _frontier_table(points)),
    )


def _captioned(title: str, points: Sequence[Mapping[str, Any]], score: str) -> str:
    """The title, and what the chosen network has."""
    chosen = next((point for point in points if point["chosen"]), None)
    if chosen is None:
        return title
    value = float(chosen[score])
    told = words.percent(value) if score == "nearest_neighbour_agreement" else words.score(value)
    return f"{title}: {told} at {words.percent(float(chosen['share']))}"


def _drawn(points: Sequence[Mapping[str, Any]], score: str) -> list[FrontierPoint]:
    return [
        FrontierPoint(
            share=float(point["share"]), value=float(point[score]), chosen=bool(point["chosen"])
        )
        for point in points
    ]


def _frontier_table(points: Sequence[Mapping[str, Any]]) -> Markup:
    heads = ("share in INT8", "INT8 layers", "mean", "worst", "same nearest neighbour")
    columns = [
        *(Column(head=head) for head in heads),
        Column(head="judged on", kind=None),
        Column(head="", kind=None),
    ]
    return table(columns, [_frontier_line(point) for point in reversed(points)])


def _frontier_line(point: Mapping[str, Any]) -> Line:
    neighbours = point.get("nearest_neighbour_agreement")
    layers = point["int8_layers"]
    cells = (
        words.percent(float(point["share"])),
        str(layers if isinstance(layers, int) else len(layers)),
        words.score(float(point["mean"])),
        words.score(float(point["worst"])),
        "–" if neighbours is None else words.percent(float(neighbours)),
        f"the {point.get('split', SEARCH)} split",
        "chosen" if point["chosen"] else "",
    )
    return Line(cells=cells, own=bool(point["chosen"]))


def _layers(facts: CardFacts) -> Markup:
    layers = facts.layers
    if not layers:
        return Markup("")
    in_float = [layer for layer in layers if not layer["int8"]]
    parts = (
        [
            folded(
                f"The {len(in_float)} weighted layers that stay in float, and why",
                _layer_table(in_float),
            )
        ]
        if in_float
        else []
    )
    return element("div", parts, folded(f"All {len(layers)} weighted layers", _layer_table(layers)))


def _layer_table(layers: Sequence[Mapping[str, Any]]) -> Markup:
    has_costs = any(layer.get("drift") is not None for layer in layers)
    costs = ("drift alone", "mean alone") if has_costs else ()
    columns = [
        Column(head="layer", kind=None),
        Column(head="operator", kind=None),
        *(Column(head=head) for head in ("share of work", *costs)),
        Column(head="kept in", kind=None),
        Column(head="why", kind="words"),
    ]
    return table(columns, [_layer_line(layer, has_costs=has_costs) for layer in layers])


def _layer_line(layer: Mapping[str, Any], *, has_costs: bool) -> Line:
    drift, mean = layer.get("drift"), layer.get("mean")
    costs = (
        (
            "–" if drift is None else f"{drift:.2e}",
            "–" if mean is None else words.score(float(mean)),
        )
        if has_costs
        else ()
    )
    kind = element(
        "span",
        "int8" if layer["int8"] else "float",
        class_=f"badge {'good' if layer['int8'] else 'unsure'}",
    )
    share = words.percent(float(layer["share"]))
    return Line(
        cells=(
            code(str(layer["node"])),
            str(layer.get("operator", "")),
            share,
            *costs,
            kind,
            str(layer.get("why", "")),
        )
    )


def _float_layers(facts: CardFacts) -> Markup:
    """Names alone: products of two activations, and every layer where no detail was kept."""
    record = facts.manifest.quantization
    told = {str(layer["node"]) for layer in facts.layers}
    rest = [] if record is None else [name for name in record.float_layers if name not in told]
    if not rest:
        return Markup("")
    names = [element("li", code(name)) for name in rest]
    title = (
        f"{len(rest)} more products stay in float"
        if told
        else f"{len(rest)} layers that stay in float"
    )
    return folded(title, element("ul", names))

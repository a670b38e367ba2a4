"""What a network's facts say of its quantization (quantization.py has the keys), and a search's
table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine_build.int8.calibration import Range
from engine_build.int8.layers import Layer
from engine_build.int8.sensitivity import LayerCost, Sensitivity
from engine_build.int8.work import share

Facts = dict[str, Any]
PLAIN = "weighted, and behind no activation function"
BEHIND = "behind an activation function, where outliers live, and no search was asked for"


def work_facts(work: Mapping[str, int], int8: Collection[str]) -> Facts:
    """The share, and what stays in float."""
    return {
        "int8_share_of_matmul_macs": round(share(work, int8), 4),
        "int8_layers": len(int8),
        "float_layers": [node for node in work if node not in int8],
    }


def range_facts(ranges: Mapping[str, Range]) -> Facts:
    """Each activation's smoothing."""
    return {
        "smoothing": {
            name: None if each.smoothing is None else each.smoothing.alpha
            for name, each in ranges.items()
        }
    }


def fixed_facts(
    layers: Sequence[Layer], shares: Mapping[str, float], int8: Collection[str]
) -> Facts:
    """By the fixed recipe."""
    return {
        "layers": [
            _layer(layer, shares[layer.node], layer.node in int8)
            | {"why": PLAIN if layer.node in int8 else BEHIND}
            for layer in layers
        ]
    }


def search_facts(found: Sensitivity, samples: int) -> Facts:
    """By a search."""
    return {
        "layers": [
            _layer(cost.layer, cost.share, cost.layer.node in found.chosen.int8)
            | {
                "drift": float(f"{cost.drift:.3g}"),
                "mean": round(cost.mean, 6),
                "why": _why(cost, found),
            }
            for cost in found.costs
        ],
        "frontier": [point.facts(chosen=point is found.chosen) for point in found.points],
        "leaving": list(found.leaving),
        "search_samples": samples,
    }


def stepped_back(facts: Facts) -> Facts | None:
    """The facts of the next smaller share that held the budget in the search; None when there is
    none.

    The share and the layers in float are the caller's to tell anew.
    """
    points = facts.get("frontier", [])
    now = next((point["share"] for point in points if point["chosen"]), 0.0)
    smaller = [point for point in points if point["holds"] and point["share"] < now]
    if not smaller:
        return None
    chosen = max(smaller, key=lambda point: float(point["share"]))
    int8 = facts["leaving"][-chosen["int8_layers"] :]
    return facts | {
        "frontier": [_chosen_anew(point, chosen) for point in points],
        "layers": [
            _left_out(layer) if layer["int8"] and layer["node"] not in int8 else layer
            for layer in facts["layers"]
        ],
    }


def cost_table(found: Sensitivity) -> str:
    """Plain text, a layer a line, the dearest for its share first."""
    lines = [f"{'share':>6}  {'drift':>9}  {'mean alone':>10}  {'':5}  layer"]
    for cost in sorted(found.costs, key=lambda cost: -cost.per_share):
        kind = "int8" if cost.layer.node in found.chosen.int8 else "float"
        lines.append(
            f"{cost.share:6.1%}  {cost.drift:9.2e}  {cost.mean:10.5f}  {kind:5}  {cost.layer.node}"
        )
    return "\n".join(lines)


def _layer(layer: Layer, part: float, int8: bool) -> Facts:
    return {"node": layer.node, "operator": layer.operator, "share": round(part, 4), "int8": int8}


def _chosen_anew(point: Facts, chosen: Facts) -> Facts:
    return (
        point
        | {"chosen": point is chosen}
        | ({"refused_by_validation": True} if point["chosen"] else {})
    )


def _left_out(layer: Facts) -> Facts:
    return layer | {
        "int8": False,
        "why": f"{layer['why']}; left out because the validation split refused the larger share",
    }


def _why(cost: LayerCost, found: Sensitivity) -> str:
    alone = f"alone in INT8 it drifts by {cost.drift:.1e} for {cost.share:.1%} of the work"
    if cost.layer.node in found.chosen.int8:
        return alone
    place = found.leaving.index(cost.layer.node) + 1
    return f"{alone}, number {place} of {len(found.leaving)} in cost for its share: with it the budget breaks on the search split"

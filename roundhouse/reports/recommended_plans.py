"""Recommendations of a CreateAIRecommendationJob beside our rules, as rows and lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roundhouse.recommendation.generation import RecommendedPlan

COLUMNS = (
    "#", "instances", "tensor parallel", "copies each", "our rules", "KV tokens", "ms a token",
    "ms to the first", "USD/hour",
)  # fmt: skip
RIGHT = (*COLUMNS[2:4], *COLUMNS[5:])
NOTHING = "–"


def cells_of(plan: RecommendedPlan) -> tuple[str, ...]:
    """Return a plan's cells, by COLUMNS; the numbers are our planner's."""
    item = plan.candidate
    return (
        str(plan.number),
        f"{plan.instances or '?'} x {plan.instance_type}",
        NOTHING if plan.tensor_parallel is None else str(plan.tensor_parallel),
        NOTHING if plan.copies_per_instance is None else str(plan.copies_per_instance),
        "hold" if plan.holds else "refuse",
        *(
            (NOTHING,) * 4
            if item is None
            else (
                NOTHING if item.kv_tokens is None else f"{item.kv_tokens:,}",
                _number(item.itl_ms, 1),
                _number(item.ttft_ms, 0),
                _number(item.usd_an_hour, 2),
            )
        ),
    )


def _number(value: float | None, digits: int) -> str:
    return "unknown" if value is None else f"{value:,.{digits}f}"


def lines(plans: Sequence[RecommendedPlan]) -> Iterator[str]:
    """Yield of each plan why it is refused, where it is not ours, and what the job measured."""
    for plan in plans:
        for refusal in plan.refusals:
            yield f"  {plan.number}: refused: {refusal}."
        if plan.differences:
            yield f"  {plan.number}: not our plan: {'; '.join(plan.differences)}."
        if plan.expected:
            yield f"  {plan.number}: the job expects {', '.join(plan.expected)}."
        for note in plan.notes:
            yield f"  {plan.number}: {note}."
    held = sum(plan.holds for plan in plans)
    yield f"Our rules accept {held} of {len(plans)} recommendations."

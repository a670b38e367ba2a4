"""Tables and notes of text generators in a plan: what would serve them, and why nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onboarding.text_generation.plan import Candidate, TextGenerationPlan
from onboarding.text_generation.quantizer_route import QUANTIZER, QUANTIZER_JOB
from roundhouse.gitops.plan_section import Section

UNKNOWN = "unknown"
BUILT: Mapping[str | None, str] = {
    None: "-",
    QUANTIZER: "in CodeBuild, on CPUs",
    QUANTIZER_JOB: "in a training job on its GPU",
}
"""Where a missing checkpoint is built, by its route."""


def generation_sections(plans: Sequence[TextGenerationPlan]) -> Iterator[Section]:
    """Yield the table of what would serve, and the one of the types that were not chosen."""
    yield Section(
        title="Text generation",
        columns=("model", "serves on", "memory of a GPU", "KV tokens, requests a copy",
                 "ms a token / to the first", "USD an hour / a million tokens"),
        rows=tuple(_row(plan, plan.chosen) for plan in plans if plan.chosen is not None),
    )  # fmt: skip
    yield Section(
        title="Checkpoints of text generators",
        columns=("model", "checkpoint", "scheme", "state", "is built"),
        rows=tuple(
            (plan.model, item.checkpoint_key, item.scheme, item.use, BUILT[item.route])
            for plan in plans
            for item in plan.checkpoints
        ),
    )
    yield Section(
        title="Not chosen for text generation",
        columns=("model", "instance type", "because"),
        rows=tuple(
            (plan.model, item.instance_type, item.reason or "-")
            for plan in plans
            for item in plan.others
        ),
        folded=True,
    )


def generation_notes(plans: Sequence[TextGenerationPlan]) -> Iterator[str]:
    """Yield what was assumed of each text generator."""
    for plan in plans:
        yield from (f"{plan.model}: {note}" for note in plan.notes)


def _row(plan: TextGenerationPlan, item: Candidate) -> tuple[str, ...]:
    sizes = item.weights_gib, item.kv_gib, item.overhead_gib
    memory = "weights {:.1f} GiB, KV {:.1f}, overhead {:.1f}".format(*sizes)
    for title, gib in (("adapters", item.adapters_gib), ("draft model", item.draft_gib)):
        memory += "" if gib is None else f", {title} {gib:.1f}"
    return (
        plan.model,
        f"{item.instances} x {item.instance_type} ({item.gpu}), {item.scheme}, KV {item.kv_cache}, "
        f"tensor parallel {item.tensor_parallel}, {item.copies} copies",
        memory,
        f"{item.kv_tokens:,}; {item.longest_requests:.1f} of the longest, {item.expected_requests} "
        "as declared",
        f"{_number(item.itl_ms, 1)} / {_number(item.ttft_ms, 0)}",
        f"{_number(item.usd_an_hour, 2)} / {_number(item.usd_a_million_tokens, 2)}",
    )


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"

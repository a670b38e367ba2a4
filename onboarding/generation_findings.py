"""Plans of a tree's text generators: what would serve each of them in each environment."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import FaultsError
from onboarding.generation_resolve import generation_deployments
from onboarding.rules.generation_case import GenerationCase, generation_cases
from onboarding.text_generation.gpu_memory import GIB
from onboarding.text_generation.plan import Candidate, TextGenerationPlan
from onboarding.text_generation.planner import choose
from onboarding.tree import Tree


def generation_plans(tree: Tree, environment: str) -> tuple[TextGenerationPlan, ...]:
    """Return the plan of every text generator of an environment; none of a tree with faults."""
    if tree.faults or environment not in tree.views:
        return ()
    cases = generation_cases(tree.views[environment], tree.root)
    return tuple(_plan(tree, environment, case) for case in cases)


def plan_line(plan: TextGenerationPlan) -> str:
    """Return a plan in one sentence."""
    begin = f"{plan.environment}: text generator '{plan.model}'"
    item = plan.chosen
    if item is None:
        return f"{begin}: {' '.join(plan.notes)}"
    money = "price unknown" if item.usd_an_hour is None else f"{item.usd_an_hour:.2f} USD an hour"
    if item.usd_a_million_tokens is not None:
        money += f", {item.usd_a_million_tokens:.2f} USD a million output tokens"
    times = "times unknown" if item.itl_ms is None or item.ttft_ms is None else (
        f"p95 {item.itl_ms:.0f} ms a token and {item.ttft_ms:.0f} ms to the first"
    )  # fmt: skip
    return (
        f"{begin}: {item.instances} x {item.instance_type}, {item.scheme}, tensor parallel "
        f"{item.tensor_parallel}, {item.copies} copies of {item.expected_requests} requests each; "
        f"{item.kv_tokens:,} KV tokens a copy, {times}; {money}."
    )


def _plan(tree: Tree, environment: str, case: GenerationCase) -> TextGenerationPlan:
    plan = TextGenerationPlan(
        model=case.spec.name,
        environment=environment,
        platform=case.spec.serving.platform,
        engine_version=case.engine_version,
    )
    request = case.request()
    if request is None:
        note = (
            "not planned: its checkpoint is not in the tree, and 'source.headers' names no file of "
            "its headers; `roundhouse check --fetch-headers` writes one."
        )
        return plan.model_copy(update={"notes": (note,)})
    types = tuple(case.candidates())
    if not types:
        return plan.model_copy(update={"notes": ("not planned: the region has no GPU type.",)})
    try:
        (deployment,) = generation_deployments(tree, plan.environment, (plan.model,))
    except FaultsError as error:
        return plan.model_copy(update={"notes": (f"not planned: {error}",)})
    if deployment.entry is not None:
        request = request.with_schemes((deployment.candidate.scheme,))
    chosen, *others = choose(request, types)
    return plan.model_copy(
        update={
            "checkpoints": deployment.checkpoints,
            "checkpoint_gib": request.checkpoint.bytes / GIB,
            "chosen": chosen,
            "others": tuple(others),
            "notes": tuple(_notes(case, chosen)),
        }
    )


def _notes(case: GenerationCase, chosen: Candidate) -> Iterator[str]:
    if not chosen.is_measured:
        yield (
            f"Memory and times of vLLM {case.engine_version} on {chosen.gpu} GPUs were not "
            "measured: assumed from vLLM 0.26.0 on an H200, with half a GiB more of overhead."
        )
    if case.spec.serving.adapters or case.spec.serving.speculative is not None:
        yield "What adapters and speculative decoding cost or save of the time is not counted."

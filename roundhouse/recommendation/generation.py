"""Recommendations of a CreateAIRecommendationJob as plans of a text generator, under our rules.

Each recommendation is the model file with overrides: its instance type, tensor parallel size,
copies and the engine arguments among its environment variables. `check`'s own rules and planner say
of it what they would say of such a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from onboarding.document import Document, Place
from onboarding.environment_view import EnvironmentView
from onboarding.fault import Fault
from onboarding.generation_checks import (
    generator_faults,
    generator_placement_faults,
    placement_cases,
)
from onboarding.generation_findings import generation_plans
from onboarding.platform import instance_types
from onboarding.rules.generation_placement_rules import placement_request
from onboarding.text_generation.plan import Candidate
from onboarding.text_generation.planner import best_candidate
from onboarding.text_generation.platforms import generation_platforms
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.tree import Tree
from onboarding.validation import validate
from roundhouse.aws.shapes import require_valid
from roundhouse.errors import RoundhouseError

OPERATION = "DescribeAIRecommendationJob"
ENGINE_PREFIXES = ("SM_VLLM_", "OPTION_")
TENSOR_PARALLEL = ("tensor_parallel_size", "tensor_parallel_degree")
EVERY_GPU = "max"
RENAMED = {"max_rolling_batch_size": "max_num_seqs", "quantize": "quantization"}
"""LMI's names of arguments that vLLM calls otherwise."""
KEYS = {
    "max_model_len": ("context", "max_model_len"),
    "gpu_memory_utilization": ("serving", "gpu_memory_utilization"),
    "max_num_seqs": ("serving", "max_num_seqs"),
    "max_num_batched_tokens": ("serving", "max_num_batched_tokens"),
    "max_num_queued_reqs": ("serving", "max_num_queued_reqs"),
}
"""Engine arguments with a key of their own in a model file."""
SET_BY_THE_PLAN = ("model", "model_id", "served_model_name", "revision", "trust_remote_code")
OF_LMI = (
    "async_mode", "rolling_batch", "entrypoint", "model_loading_timeout", "sessions_expiration",
    "output_formatter", "lmcache_auto_config",
)  # fmt: skip
"""Settings of DJL Serving, not of vLLM."""


@dataclass(frozen=True, kw_only=True)
class RecommendedPlan:
    """One recommendation of a job, as our rules and our planner see it."""

    number: int
    description: str
    instance_type: str
    instances: int | None
    copies_per_instance: int | None
    tensor_parallel: int | None
    image: str | None
    variables: Mapping[str, str]
    expected: tuple[str, ...]
    """What the job measured."""
    refusals: tuple[str, ...]
    differences: tuple[str, ...]
    """Where it is not our plan."""
    notes: tuple[str, ...]
    candidate: Candidate | None
    """By our planner; None where it cannot be planned."""

    @property
    def holds(self) -> bool:
        """Return whether our rules and the planner accept it."""
        return not self.refusals and self.candidate is not None and self.candidate.holds


def read_job(path: Path) -> Mapping[str, Any]:
    """Return the answer of DescribeAIRecommendationJob in a JSON file. Raises RoundhouseError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no JSON"
        raise RoundhouseError(
            f"--import {path}: {reason}; give what `aws sagemaker describe-ai-recommendation-job` "
            "answered."
        ) from error
    if not isinstance(document, dict):
        raise RoundhouseError(f"--import {path}: is no JSON object.")
    document.pop("ResponseMetadata", None)
    require_valid(OPERATION, "output_shape", document)
    if not document.get("Recommendations"):
        status = document.get("AIRecommendationJobStatus")
        reason = document.get("FailureReason")
        why = f": {reason}" if reason else ""
        raise RoundhouseError(
            f"--import {path}: the job is {status} and has no recommendation{why}; give a "
            "completed one's answer."
        )
    return document


def recommended_plans(
    tree: Tree, environment: str, model: str, job: Mapping[str, Any]
) -> tuple[RecommendedPlan, ...]:
    """Return each recommendation of a job as a plan of a model in an environment."""
    view = tree.views[environment]
    chosen = next(plan for plan in generation_plans(tree, environment) if plan.model == model)
    return tuple(
        _plan(tree, view, model, chosen.chosen, number, item)
        for number, item in enumerate(job["Recommendations"], 1)
    )


def _plan(
    tree: Tree,
    view: EnvironmentView,
    model: str,
    ours: Candidate | None,
    number: int,
    item: Mapping[str, Any],
) -> RecommendedPlan:
    deployment = item.get("DeploymentConfiguration") or {}
    variables = dict(deployment.get("EnvironmentVariables") or {})
    instance_type = str(deployment.get("InstanceType") or "unknown")
    instances = deployment.get("InstanceCount")
    copies = deployment.get("CopyCountPerInstance")
    image = deployment.get("ImageUri")
    row = instance_types().get(instance_type)
    gpus = None if row is None else row.gpu_count
    size = _tensor_parallel(variables, gpus)
    notes = list(_notes(item, variables, image))
    override = _override(variables, instance_type, size, (instances or 1) * (copies or 1), image)
    file = view.generators[model]
    place = Place(file=f"recommendation {number}", line=number)
    document = Document(file=place.file, data=override, places={(): place})
    scheme = None if ours is None else ours.scheme
    if scheme is not None:
        override["quantization"] = {**override.get("quantization", {}), "schemes": [scheme]}
    checked = validate(TextGenerationSpec, file.document.with_overrides(document))
    own = replace(view, generators={model: checked})
    faults = [
        *generator_faults({model: checked}, tree.root),
        *generator_placement_faults(own, tree.root),
    ]
    refusals = [_sentence(fault) for fault in dict.fromkeys(faults)]
    if gpus is not None and size is not None and copies is not None and copies * size > gpus:
        refusals.insert(
            0,
            f"{copies} copies of {size} GPUs each do not fit the {gpus} GPUs of an {instance_type}",
        )
    candidate = None
    case = next(iter(placement_cases(own, tree.root)))
    request = placement_request(case) if checked.is_valid else None
    if request is not None and row is not None and row.is_gpu:
        candidate = best_candidate(request, row)
        if not candidate.holds and not refusals:
            refusals.append(candidate.reason or "does not hold the SLO")
    return RecommendedPlan(
        number=number,
        description=str(item.get("RecommendationDescription") or ""),
        instance_type=instance_type,
        instances=instances,
        copies_per_instance=copies,
        tensor_parallel=size,
        image=image,
        variables=variables,
        expected=tuple(_expected(item.get("ExpectedPerformance") or ())),
        refusals=tuple(refusals),
        differences=tuple(_differences(ours, instance_type, instances, copies, size)),
        notes=tuple(notes),
        candidate=candidate,
    )


def engine_arguments(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's arguments among a container's variables, by vLLM's names."""
    found = {}
    for variable, value in variables.items():
        for prefix in ENGINE_PREFIXES:
            if variable.startswith(prefix):
                name = variable.removeprefix(prefix).lower()
                found[RENAMED.get(name, name)] = value
    degree = variables.get("TENSOR_PARALLEL_DEGREE")
    return found if degree is None else {"tensor_parallel_degree": degree, **found}


def _tensor_parallel(variables: Mapping[str, str], gpus: int | None) -> int | None:
    """Return the tensor parallel size; None where nothing says it, or it is no number."""
    arguments = engine_arguments(variables)
    text = next((arguments[name] for name in TENSOR_PARALLEL if name in arguments), None)
    if text == EVERY_GPU:
        return gpus
    return int(text) if text is not None and text.isdecimal() else None


def _override(
    variables: Mapping[str, str],
    instance_type: str,
    tensor_parallel: int | None,
    copies: int,
    image: str | None,
) -> dict[str, Any]:
    """Return what a model file would say to be served so."""
    serving: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {
        "endpoint": {
            "instance_types": [instance_type],
            "copies": {"min": copies, "max": copies},
        },
        "serving": serving,
    }
    if tensor_parallel is not None:
        serving["tensor_parallel"] = tensor_parallel
    row = next(
        (row for row in generation_platforms().values() if image and image.endswith(row.image)),
        None,
    )
    if row is not None:
        serving["platform"] = row.name
    for name, text in engine_arguments(variables).items():
        value = _value(text)
        if name in (*TENSOR_PARALLEL, *SET_BY_THE_PLAN, *OF_LMI):
            continue
        if name in KEYS:
            section, key = KEYS[name]
            sections.setdefault(section, {})[key] = value
        elif name == "kv_cache_dtype":
            kind = "fp8" if text.startswith("fp8") else "auto"
            sections["quantization"] = {"kv_cache": kind}
        elif name == "speculative_config" and isinstance(value, dict):
            serving["speculative"] = {
                key: value[other]
                for key, other in (
                    ("method", "method"),
                    ("tokens", "num_speculative_tokens"),
                    ("model", "model"),
                )
                if other in value
            }
        else:
            serving.setdefault("arguments", {})[name] = text if isinstance(value, dict) else value
    return dict(sections)


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | dict) else text


def _sentence(fault: Fault) -> str:
    given = "" if fault.value is None else f", given {fault.value}"
    allowed = "" if fault.allowed is None else f"; allowed: {fault.allowed}"
    return f"{fault.what}{given}{allowed}; {fault.way_out}"


def _expected(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for metric in metrics:
        stat, unit = metric.get("Stat"), metric.get("Unit")
        name = metric["Metric"] + (f" {stat}" if stat else "")
        yield f"{name} {metric['Value']}{f' {unit}' if unit else ''}"


def _notes(
    item: Mapping[str, Any], variables: Mapping[str, str], image: str | None
) -> Iterator[str]:
    for detail in item.get("OptimizationDetails") or ():
        yield f"optimized by the job: {detail['OptimizationType']}"
    known = [row for row in generation_platforms().values() if image and image.endswith(row.image)]
    if image and not known:
        yield f"its image {image.rpartition('/')[2]} has no row: checked with the file's platform"
    ours = [name for name in engine_arguments(variables) if name in OF_LMI]
    if ours:
        yield f"settings of DJL Serving, not checked: {', '.join(sorted(ours))}"


def _differences(
    ours: Candidate | None,
    instance_type: str,
    instances: int | None,
    copies: int | None,
    tensor_parallel: int | None,
) -> Iterator[str]:
    if ours is None:
        yield "our planner has no plan"
        return
    for name, other, own in (
        ("instance type", instance_type, ours.instance_type),
        ("instances", instances, ours.instances),
        ("copies of an instance", copies, ours.copies_per_instance),
        ("tensor parallel", tensor_parallel, ours.tensor_parallel),
    ):
        if other is not None and other != own:
            yield f"{name} {other}, ours {own}"


def plan_document(plan: RecommendedPlan) -> dict[str, Any]:
    """Return a plan for JSON."""
    fields = asdict(replace(plan, candidate=None))
    candidate = None if plan.candidate is None else plan.candidate.model_dump(mode="json")
    return {**fields, "candidate": candidate, "holds": plan.holds}

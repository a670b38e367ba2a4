"""Rules of a text generator in one environment: its GPUs, its host AMI, its region, its memory."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.platform import InstanceType, host_images, instance_types
from onboarding.prices import price
from onboarding.rules.generation_case import GenerationPlacementCase
from onboarding.rules.placement_rules import zero_in_region
from onboarding.rules.rule import rule
from onboarding.text_generation.kv_cache import ArchitectureError
from onboarding.text_generation.planner import Request, choose, scheme_problem
from onboarding.text_generation.platforms import KV_FP8, schemes

SHOWN = 3


@rule("endpoint")
def generator_types_are_known(case: GenerationPlacementCase) -> Iterator[Fault]:
    """A type has a row, a GPU, and the region."""
    known = tuple(name for name, row in instance_types().items() if row.is_gpu)
    for index, name in enumerate(case.model.spec.endpoint.instance_types):
        place = case.model.document.at("endpoint", "instance_types", index)
        row = instance_types().get(name)
        if row is None:
            yield place.unknown(
                "unknown instance type", name, known, "add its row to instance_types.yaml"
            )
        elif not row.is_gpu:
            yield place.fault(
                "'endpoint.instance_types' names a type without a GPU",
                value=name,
                allowed=comma_list(known),
                way_out="choose a GPU type",
            )
        elif case.region is not None and row.is_missing_in(case.region):
            yield place.fault(
                f"SageMaker does not host this type in {case.region}",
                value=name,
                allowed=comma_list(row.regions or ()),
                way_out="choose another type, or another region",
            )


@rule("endpoint", "quantization", "source")
def formats_fit_the_gpus(case: GenerationPlacementCase) -> Iterator[Fault]:
    """A format without tensor cores for it saves memory alone, and vLLM does not say so."""
    spec, types = case.model.spec, case.named_types
    if not types or not all(row.is_gpu for row in types.values()):
        return
    headers = case.model.headers
    already = None if headers is None else headers.scheme
    names = spec.quantization.schemes if already is None else (already,)
    for number, name in enumerate(names):
        problems = [scheme_problem(name, row) for row in types.values()]
        if all(problems):
            path: tuple[str | int, ...] = ("quantization", "schemes", number)
            yield case.model.document.at(*(path if already is None else ("source",))).fault(
                problems[0] or "",
                value=name,
                way_out=f"choose {schemes()[name].instead}, or another instance type"
                + _measure(problems[0] or "", name),
            )
    if spec.quantization.kv_cache == "fp8":
        problems = [scheme_problem(KV_FP8, row) for row in types.values()]
        if all(problems):
            yield case.model.document.at("quantization", "kv_cache").fault(
                problems[0] or "",
                value="fp8",
                way_out="write kv_cache: bf16, or choose another instance type",
            )


def _measure(problem: str, name: str) -> str:
    unknown = "is not known" in problem
    row = f"`unmeasured_from` of {name} out of onboarding/data/generation_schemes.yaml"
    return f", or measure it there and take {row}" if unknown else ""


@rule("endpoint", "serving")
def every_gpu_has_work(case: GenerationPlacementCase) -> Iterator[Fault]:
    """GPUs that no copy can take are paid for."""
    spec = case.model.spec
    size = spec.serving.tensor_parallel
    for index, row in case.named_types.items():
        if size == "auto" or not row.is_gpu:
            continue
        place = case.model.document.at_change(
            ("serving", "tensor_parallel"), ("endpoint", "instance_types", index)
        )
        if size > row.gpu_count:
            yield place.fault(
                f"tensor_parallel {size} needs more GPUs than the {row.gpu_count} of {row.name}",
                value=size,
                allowed=_sizes(row),
                way_out="lower it, or choose a type with more GPUs",
            )
        elif idle := row.gpu_count % size:
            yield place.fault(
                f"tensor_parallel {size} leaves {idle} of the {row.gpu_count} GPUs of {row.name} "
                "idle",
                value=size,
                allowed=_sizes(row),
                way_out="choose one of these, or auto",
            )


def _sizes(row: InstanceType) -> str:
    return ", ".join(str(size) for size in (1, 2, 4, 8) if row.gpu_count % size == 0)


@rule("endpoint", "serving")
def host_ami_has_the_images_cuda(case: GenerationPlacementCase) -> Iterator[Fault]:
    """The wrong pair stays in Creating, without a log, until it is given up."""
    platform, own = case.model.platform, case.model.spec.endpoint.inference_ami_version
    if platform is None:
        return
    by_environment = None
    if "inference_ami_version" in case.environment.sections:
        by_environment = case.environment.spec.inference_ami_version
    name = own or by_environment or platform.inference_ami_version
    place = case.model.document.at_change(("endpoint", "inference_ami_version"), ("serving",))
    if own is not None:
        place = case.model.document.at("endpoint", "inference_ami_version")
    elif by_environment is not None:
        place = case.environment.document.at("inference_ami_version")
    if name is None:
        yield case.model.document.at("serving", "platform").fault(
            f"which host AMI {platform.image} needs is not known",
            allowed=comma_list(host_images()),
            way_out="add `inference_ami_version:` to endpoint, as the image's page says",
        )
        return
    row = host_images().get(name)
    if row is None:
        yield place.unknown(
            "unknown InferenceAmiVersion", name, host_images(), "add its row to host_images.yaml"
        )
    elif platform.cuda is not None and row.cuda.split(".")[0] != platform.cuda.split(".")[0]:
        fitting = [
            other.name
            for other in host_images().values()
            if other.cuda.split(".")[0] == platform.cuda.split(".")[0]
        ]
        yield place.fault(
            f"{platform.image} is of CUDA {platform.cuda}, and the host AMI of CUDA {row.cuda}: "
            f"'{case.model.spec.name}' would stay in Creating, without a log",
            value=name,
            allowed=", ".join(fitting),
            way_out="name one of these in endpoint.inference_ami_version",
        )


@rule("endpoint")
def region_takes_no_instances(case: GenerationPlacementCase) -> Iterator[Fault]:
    """Some regions refuse an endpoint without instances."""
    if case.model.spec.endpoint.copies.min == 0 and case.region is not None:
        place = case.model.document.at("endpoint", "copies", "min")
        yield from zero_in_region(place, case.region, "keep one copy")


@rule("source", "context", "slo", "quantization", "serving", "endpoint")
def some_type_holds_the_slo(case: GenerationPlacementCase) -> Iterator[Fault]:
    """Weights, cache and SLO fit at least one of the types; the reasons of the nearest are told."""
    earlier = (formats_fit_the_gpus, every_gpu_has_work)
    copies = case.model.spec.endpoint.copies
    if copies.min > copies.max or any(any(other.faults(case)) for other in earlier):
        return
    request = placement_request(case)
    types = tuple(case.candidates())
    if request is None or not types:
        return
    try:
        found = choose(request, types)
    except ArchitectureError:
        return
    if any(item.holds for item in found):
        return
    nearest = sorted(found, key=lambda item: -(item.kv_tokens or 0))[:SHOWN]
    reasons = "; ".join(f"{item.instance_type}: {item.reason}" for item in nearest)
    more = f" (and {len(found) - SHOWN} more types)" if len(found) > SHOWN else ""
    yield case.model.document.at("endpoint", "instance_types").fault(
        f"no instance type can serve this: {reasons}{more}",
        way_out="name a larger type, try a format of fewer bits, lower max_model_len or the "
        "concurrency, or relax the SLO",
    )


def placement_request(case: GenerationPlacementCase) -> Request | None:
    """Return what the planner is asked; None where the checkpoint's headers are not known."""
    if case.model.headers is None:
        return None
    region = case.region

    def hourly(name: str) -> float | None:
        return None if region is None else price(region, "hosting", name)

    return Request(
        spec=case.model.spec,
        checkpoint=case.model.headers,
        engine_version=case.model.engine_version,
        price=hourly,
    )

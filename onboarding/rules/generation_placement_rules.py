"""Rules of a text generator in one environment: its GPUs, its host AMI, its region, its memory."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault, comma_list
from onboarding.platform import InstanceType, host_images, instance_types
from onboarding.rules.cases import GenerationCase
from onboarding.rules.placement_rules import zero_in_region
from onboarding.text_generation.kv_cache import ArchitectureError
from onboarding.text_generation.planner import choose, scheme_problem
from onboarding.text_generation.platforms import KV_FP8, schemes

SHOWN = 3


def generator_types_are_known(case: GenerationCase) -> Iterator[Fault]:
    """A type has a row, a GPU, and the region."""
    known = tuple(name for name, row in instance_types().items() if row.is_gpu)
    for index, name in enumerate(case.spec.endpoint.instance_types):
        place, row = case.file.at(f"endpoint.instance_types[{index}]"), instance_types().get(name)
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


def formats_fit_the_gpus(case: GenerationCase) -> Iterator[Fault]:
    """A format without tensor cores for it saves memory alone, and vLLM does not say so."""
    quantization, types = case.spec.quantization, case.named_types
    if not types or not all(row.is_gpu for row in types.values()):
        return
    already = None if case.headers is None else case.headers.scheme
    for number, name in enumerate(quantization.schemes if already is None else (already,)):
        problems = [scheme_problem(name, row) or "" for row in types.values()]
        if all(problems):
            row = f"`unmeasured_from` of {name} out of onboarding/data/generation_schemes.yaml"
            unknown = "is not known" in problems[0]
            path = f"quantization.schemes[{number}]" if already is None else "source"
            yield case.file.at(path).fault(
                problems[0],
                value=name,
                way_out=f"choose {schemes()[name].instead}, or another instance type"
                + (f", or measure it there and take {row}" if unknown else ""),
            )
    problems = [scheme_problem(KV_FP8, row) or "" for row in types.values()]
    if quantization.kv_cache == "fp8" and all(problems):
        yield case.file.at("quantization.kv_cache").fault(
            problems[0],
            value="fp8",
            way_out="write kv_cache: bf16, or choose another instance type",
        )


def every_gpu_has_work(case: GenerationCase) -> Iterator[Fault]:
    """GPUs that no copy can take are paid for."""
    size = case.spec.serving.tensor_parallel
    for index, row in case.named_types.items():
        if size == "auto" or not row.is_gpu:
            continue
        if size > row.gpu_count:
            what = f"needs more GPUs than the {row.gpu_count} of {row.name}"
            way_out = "lower it, or choose a type with more GPUs"
        elif idle := row.gpu_count % size:
            what = f"leaves {idle} of the {row.gpu_count} GPUs of {row.name} idle"
            way_out = "choose one of these, or auto"
        else:
            continue
        place = case.file.at("serving.tensor_parallel", f"endpoint.instance_types[{index}]")
        yield place.fault(
            f"tensor_parallel {size} {what}",
            value=size,
            allowed=", ".join(str(count) for count in (1, 2, 4, 8) if row.gpu_count % count == 0),
            way_out=way_out,
        )


def host_ami_has_the_images_cuda(case: GenerationCase) -> Iterator[Fault]:
    """The wrong pair stays in Creating, without a log, until it is given up."""
    platform, environment = case.platform, case.environment
    own = case.spec.endpoint.inference_ami_version
    if platform is None or environment is None:
        return
    shared = environment.spec.inference_ami_version
    name = own or shared or platform.inference_ami_version
    is_shared = own is None and shared is not None
    place = (environment if is_shared else case.file).at(
        "inference_ami_version" if is_shared else "endpoint.inference_ami_version"
    )
    row, wanted = host_images().get(name), platform.cuda.split(".")[0]
    if row is None:
        yield place.unknown(
            "unknown InferenceAmiVersion", name, host_images(), "add its row to host_images.yaml"
        )
    elif row.cuda.split(".")[0] != wanted:
        rows = host_images().values()
        yield place.fault(
            f"{platform.image} is of CUDA {platform.cuda}, and the host AMI of CUDA {row.cuda}: "
            f"'{case.spec.name}' would stay in Creating, without a log",
            value=name,
            allowed=", ".join(item.name for item in rows if item.cuda.split(".")[0] == wanted),
            way_out="name one of these in endpoint.inference_ami_version",
        )


def region_takes_no_instances(case: GenerationCase) -> Iterator[Fault]:
    """Some regions refuse an endpoint without instances."""
    if case.spec.endpoint.copies.min == 0 and case.region is not None:
        place = case.file.at("endpoint.copies.min")
        yield from zero_in_region(place, case.region, "keep one copy")


def some_type_holds_the_slo(case: GenerationCase) -> Iterator[Fault]:
    """Weights, cache and SLO fit at least one of the types; the reasons of the nearest are told."""
    earlier = (formats_fit_the_gpus, every_gpu_has_work)
    request, types = case.request(), tuple[InstanceType, ...](case.candidates())
    copies = case.spec.endpoint.copies
    if copies.min > copies.max or any(any(other(case)) for other in earlier):
        return
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
    yield case.file.at("endpoint.instance_types").fault(
        f"no instance type can serve this: {reasons}{more}",
        way_out="name a larger type, try a format of fewer bits, lower max_model_len or the "
        "concurrency, or relax the SLO",
    )


RULES = (
    generator_types_are_known,
    formats_fit_the_gpus,
    every_gpu_has_work,
    host_ami_has_the_images_cuda,
    region_takes_no_instances,
    some_type_holds_the_slo,
)

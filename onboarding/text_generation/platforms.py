"""Platform data of text generation: images, arguments, number formats, GPUs, overheads.

`None` is "unknown", never a guess.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from onboarding.values import Value
from onboarding.yaml_text import load_data

KV_FP8 = "kv-fp8"
ANY = "*"


class GenerationPlatform(Value):
    """One image that serves text generators, and the host AMI that its CUDA needs."""

    name: str
    engine_version: str
    """Of vLLM."""
    image: str
    cuda: str
    inference_ami_version: str


class SchemeRow(Value):
    """One number format; compute capabilities as numbers, 8.9."""

    name: str
    weight_bits: float
    """Of one weight of a linear layer, its share of the scales included."""
    least: float
    loads_from: float
    only: float | None = None
    weight_only: bool = False
    unmeasured_from: float | None = None
    instead: str


class Gpu(Value):
    """One GPU: memory that CUDA reports (GiB), bandwidth (10^9 bytes/s), rate (10^12 FLOP/s)."""

    name: str
    memory_gib: float | None
    gigabytes_per_second: float | None
    bf16_teraflops: float | None
    measured: bool
    nvlink: bool


class Overhead(Value):
    """Memory of one GPU beside weights and KV cache: GiB, and arrays of a step's activations.

    An array has a 16-bit number of each token of a step for each of an MLP's numbers on the GPU.
    """

    engine_version: str
    gpu: str
    gib: float
    step_arrays: float
    measured: bool


class FormatSpeed(Value):
    """What a layer adds to a step, and how fast prompts are multiplied.

    `layer_us`: microseconds of the GPU; `prefill`: share of the BF16 rate. The CPU launches a step
    with prompts in `pieces_us` a layer where CUDA graphs hold all but attention, in `eager_us`
    where the step has more tokens than any graph.
    """

    layer_us: float
    prefill: float
    pieces_us: float
    eager_us: float


class AllReduce(Value):
    """An all-reduce between the GPUs of a copy: its least time, and bytes a second of its bus."""

    microseconds: float
    gigabytes_per_second: float
    measured: bool


class EngineServer(Value):
    """vLLM's HTTP process, as `closed_loop.Server` describes it, and its engine's process.

    `core_us`: microseconds for each request of a step.
    """

    request_ms: float
    latency_ms: float
    chunk_us: float
    turns: float
    core_us: float


class DatasheetShares(Value):
    """Shares of a datasheet's bandwidth and rate that an unmeasured GPU reaches."""

    bandwidth: float
    rate: float


@cache
def generation_platforms() -> dict[str, GenerationPlatform]:
    """Every image known, by name."""
    rows = load_data("generation_platforms.yaml")["rows"]
    return {row.name: row for row in map(GenerationPlatform.model_validate, rows)}


@cache
def scale_to_zero_regions() -> tuple[frozenset[str], frozenset[str]]:
    """Regions that took an endpoint without instances, and those that refused it."""
    regions = load_data("generation_platforms.yaml")["scale_to_zero"]
    return frozenset(regions["accepted"]), frozenset(regions["refused"])


class QuantizerRoutes(Value):
    """Where a checkpoint is built."""

    gated_cpu_parameters: int
    """Most parameters of a model that is quantized and judged on CPUs."""
    copied_cpu_gib: float
    """Most GiB of a checkpoint that is copied as it is by a machine without a GPU."""


@cache
def quantizer_tools() -> dict[str, str]:
    """Versions of the libraries that make checkpoints, by package."""
    tools: dict[str, str] = load_data("generation_quantizer.yaml")["tools"]
    return tools


@cache
def quantizer_routes() -> QuantizerRoutes:
    """Return what decides between a CPU and a GPU."""
    return QuantizerRoutes.model_validate(load_data("generation_quantizer.yaml")["routes"])


@cache
def schemes() -> dict[str, SchemeRow]:
    """Every number format, by name; `kv-fp8` is that of the KV cache."""
    rows = load_data("generation_schemes.yaml")["rows"]
    return {row.name: row for row in (SchemeRow.model_validate(_numbers(row)) for row in rows)}


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {key: float(value) if type(value) is int else value for key, value in row.items()}


@cache
def gpus() -> dict[str, Gpu]:
    """Every GPU, by the name that instance types give it."""
    rows = load_data("generation_gpus.yaml")["gpus"]
    return {row.name: row for row in (Gpu.model_validate(_numbers(row)) for row in rows)}


@cache
def _overheads() -> tuple[Overhead, ...]:
    return tuple(map(Overhead.model_validate, load_data("generation_gpus.yaml")["overheads"]))


def overhead(engine_version: str | None, gpu: str) -> Overhead:
    """Return the first row that fits an engine version and a GPU; the last one fits all."""
    return next(
        row
        for row in _overheads()
        if row.engine_version in (engine_version, ANY) and row.gpu in (gpu, ANY)
    )


@cache
def format_speed(name: str) -> FormatSpeed:
    """Return the row of a kind of number format."""
    return FormatSpeed.model_validate(load_data("generation_gpus.yaml")["formats"][name])


@cache
def all_reduce(*, nvlink: bool) -> AllReduce:
    """Return the row of GPUs that NVLink joins, or of those that PCI Express does."""
    rows = load_data("generation_gpus.yaml")["all_reduce"]
    return AllReduce.model_validate(_numbers(rows["nvlink" if nvlink else "pcie"]))


@cache
def engine_server() -> EngineServer:
    """Return what vLLM's HTTP process costs."""
    return EngineServer.model_validate(_numbers(load_data("generation_gpus.yaml")["server"]))


@cache
def datasheet_shares() -> DatasheetShares:
    """Return what is assumed of GPUs that were not measured."""
    return DatasheetShares.model_validate(load_data("generation_gpus.yaml")["datasheet"])


@cache
def known_arguments(version: str) -> frozenset[str] | None:
    """Return the arguments of a version of vLLM; None for a version that was not read."""
    content = load_data("vllm_arguments.yaml")
    if version not in content["versions"]:
        return None
    own = (row["arguments"] for row in content["only"] if version in row["versions"])
    return frozenset(content["every"]).union(*own)


@cache
def argument_flags(version: str | None) -> frozenset[str]:
    """Return the arguments that --no-x turns off; none of a version that was not read."""
    return frozenset(load_data("vllm_arguments.yaml")["flags"].get(version, ()))


def versions_with_flags() -> tuple[str, ...]:
    """Return the versions of vLLM whose flags are known."""
    return tuple(load_data("vllm_arguments.yaml")["flags"])


@cache
def quantization_methods(version: str | None) -> tuple[str, ...] | None:
    """Return the values of quant_method that a version loads; None where that is not known."""
    methods = load_data("vllm_arguments.yaml")["quantization_methods"].get(version)
    return None if methods is None else tuple(methods)


class AdapterSupport(Value):
    """Architectures that take no adapter, and models whose embeddings take them."""

    without_adapters: frozenset[str]
    embeddings_and_output: frozenset[str]
    embeddings: frozenset[str]


@cache
def adapter_support() -> AdapterSupport:
    """Return what vLLM takes LoRA adapters for."""
    rows = load_data("vllm_adapters.yaml")
    return AdapterSupport(**{key: frozenset(names) for key, names in rows.items()})


@cache
def versions_with(argument: str) -> tuple[str, ...]:
    """Return the versions of vLLM, of those that were read, that know an argument."""
    versions: list[str] = load_data("vllm_arguments.yaml")["versions"]
    return tuple(name for name in versions if argument in (known_arguments(name) or ()))

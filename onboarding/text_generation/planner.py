"""Proposes the cheapest instance type that serves a text generator within its SLO.

Pure: a spec, a checkpoint's headers, platform rows and prices in; a plan out. Memory in bytes
unless a name says GiB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from onboarding.platform import InstanceType
from onboarding.text_generation.adapter import engine_rank
from onboarding.text_generation.checkpoint import Checkpoint
from onboarding.text_generation.closed_loop import Engine, Experience, Server, simulate
from onboarding.text_generation.cuda_graphs import graph_tokens
from onboarding.text_generation.gpu_memory import (
    GIB,
    GpuMemory,
    adapter_bytes,
    gpu_memory,
    mlp_width,
)
from onboarding.text_generation.kv_cache import (
    CacheLayers,
    CacheSize,
    bytes_read,
    cache_layers,
    cache_size,
)
from onboarding.text_generation.lengths import log_normal
from onboarding.text_generation.plan import Candidate
from onboarding.text_generation.platforms import (
    KV_FP8,
    FormatSpeed,
    Gpu,
    SchemeRow,
    all_reduce,
    datasheet_shares,
    engine_server,
    format_speed,
    gpus,
    schemes,
)
from onboarding.text_generation.spec import (
    ContextSpec,
    GenerationSloSpec,
    TextGenerationSpec,
)
from onboarding.text_generation.weights import BYTES_16, Weights, count_weights

CONCURRENT_STEPS = 2
"""vLLM schedules a step while another runs, and holds the tokens of both."""
TOKENS_A_MILLION = 1_000_000
STEP_SIZES = ((160, 16384, 1024), (70, 8192, 1024), (0, 2048, 256))
"""vLLM's max_num_batched_tokens and max_num_seqs by the GPU's memory in GiB, the first that is not
above it; an A100 has the last ones (vllm/engine/arg_utils.py, get_batch_defaults).
"""
Price = Callable[[str], float | None]
"""USD an hour of an instance type; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One model as it is planned for."""

    spec: TextGenerationSpec
    checkpoint: Checkpoint
    engine_version: str | None
    price: Price

    @property
    def layers(self) -> tuple[CacheLayers, ...]:
        """Layers that cache. Raises ArchitectureError."""
        return cache_layers(self.checkpoint.text_config)

    def adapter_bytes(self, tensor_parallel: int) -> float:
        """Return what the adapters of one copy take on each GPU."""
        adapters = self.spec.serving.adapters
        if not adapters:
            return 0.0
        rank = engine_rank(adapter.rank for adapter in adapters)
        return adapter_bytes(self.checkpoint, len(adapters), rank, tensor_parallel)

    def with_schemes(self, schemes: Sequence[str]) -> Request:
        """Return the request with these number formats to choose from."""
        quantization = self.spec.quantization.model_copy(update={"schemes": tuple(schemes)})
        spec = self.spec.model_copy(update={"quantization": quantization})
        return replace(self, spec=spec)


def kv_cache_format(spec: TextGenerationSpec, scheme: str) -> str:
    """Return bf16 or fp8: what the file says; auto stays with 16 bits, which needs no gate."""
    wanted = spec.quantization.kv_cache
    return "fp8" if wanted == "fp8" else "fp16" if scheme == "fp16" else "bf16"


def scheme_problem(name: str, instance: InstanceType) -> str | None:
    """Return why a number format is not for an instance type's GPU; None: it is."""
    row, capability = schemes()[name], float(instance.compute_capability)
    where = f"{instance.gpu} has compute capability {instance.compute_capability}"
    title = "an FP8 KV cache" if name == KV_FP8 else name
    if capability < row.loads_from:
        return f"{title} needs compute capability {row.loads_from:g}, and {where}"
    if row.only is not None and capability != row.only:
        return f"{title} is computed on {row.only:g} alone, and {where}"
    if capability < row.least and not row.weight_only:
        return f"{title} would run weight-only below {row.least:g}, and {where}"
    if row.unmeasured_from is not None and capability >= row.unmeasured_from:
        return f"whether {title} is fast from {row.unmeasured_from:g} on is not known, and {where}"
    return None


def tensor_parallel_sizes(request: Request, instance: InstanceType) -> tuple[int, ...]:
    """Return the sizes to try on an instance type: the given one, or those that divide all."""
    wanted = request.spec.serving.tensor_parallel
    if wanted != "auto":
        return (wanted,)
    heads = request.checkpoint.text_config.get("num_attention_heads")
    return tuple(
        size
        for size in (1, 2, 4, 8)
        if size <= instance.gpu_count
        and instance.gpu_count % size == 0
        and (not isinstance(heads, int) or heads % size == 0)
    )


def best_candidate(request: Request, instance: InstanceType) -> Candidate:
    """Return the best way to serve on an instance type, or the one that fails last.

    The fewest instances and GPUs, then the most requests at once within the SLO, then the cheapest
    tokens, which are the fastest of one instance type.
    """
    found = list(_candidates(request, instance))
    holding = [item for item in found if item.holds]
    if holding:
        return min(holding, key=_size)
    fitting = [item for item in found if item.kv_tokens]
    return max(fitting or found, key=lambda item: item.kv_tokens or 0)


def choose(request: Request, instances: Sequence[InstanceType]) -> tuple[Candidate, ...]:
    """Return a candidate for each instance type, the chosen one first, the others with reasons.

    The cheapest of those that hold; where a price is not known, behind those that have one.
    """
    found = [best_candidate(request, instance) for instance in instances]
    holding = sorted((item for item in found if item.holds), key=_cost)
    failing = [item for item in found if not item.holds]
    if not holding:
        return tuple(failing)
    first = holding[0]
    return (first, *(_dearer(item, first) for item in holding[1:]), *failing)


def _size(item: Candidate) -> tuple[int, int, int, float]:
    cost = item.itl_ms if item.usd_a_million_tokens is None else item.usd_a_million_tokens
    requests = item.expected_requests or 0
    return item.instances or 0, item.tensor_parallel, -requests, math.inf if cost is None else cost


def _cost(item: Candidate) -> tuple[float, int, float, str]:
    price = math.inf if item.usd_an_hour is None else item.usd_an_hour
    return price, item.instances or 0, (item.weights_gib or 0.0), item.instance_type


def _dearer(item: Candidate, first: Candidate) -> Candidate:
    if item.usd_an_hour is None:
        reason = "holds the SLO; its price is not known"
    elif first.usd_an_hour is not None and item.usd_an_hour > first.usd_an_hour:
        reason = f"holds the SLO at {item.usd_an_hour:.2f} USD an hour, not {first.usd_an_hour:.2f}"
    else:
        reason = "holds the SLO, and is no cheaper"
    return item.model_copy(update={"holds": True, "reason": reason})


def _candidates(request: Request, instance: InstanceType) -> Iterator[Candidate]:
    spec = request.spec
    already = request.checkpoint.scheme
    for scheme in spec.quantization.schemes if already is None else (already,):
        base = Candidate(
            instance_type=instance.name,
            gpu=instance.gpu,
            scheme=scheme,
            kv_cache=kv_cache_format(spec, scheme),
            tensor_parallel=1,
            copies_per_instance=1,
            holds=False,
        )
        problem = scheme_problem(scheme, instance)
        if problem is None and base.kv_cache == "fp8":
            problem = scheme_problem(KV_FP8, instance)
        gpu = gpus().get(instance.gpu or "")
        if problem is not None or gpu is None or gpu.memory_gib is None:
            reason = problem or f"the memory that CUDA reports of a {instance.gpu} is not known"
            yield base.model_copy(update={"reason": reason})
            continue
        sizes = tensor_parallel_sizes(request, instance)
        for size in sizes:
            if size > instance.gpu_count or instance.gpu_count % size:
                reason = f"tensor_parallel {size} leaves GPUs of {instance.gpu_count} idle"
                yield base.model_copy(update={"reason": reason, "tensor_parallel": size})
            else:
                yield _sized(request, base, instance, gpu, size)
        if not sizes:
            yield base.model_copy(update={"reason": "no tensor parallel size divides its heads"})


def _sized(
    request: Request, base: Candidate, instance: InstanceType, gpu: Gpu, size: int
) -> Candidate:
    """Return a candidate with its memory, and where that fits with its times and cost."""
    spec, context = request.spec, request.spec.context
    weights = count_weights(request.checkpoint, schemes()[base.scheme], size)
    adapters = request.adapter_bytes(size)
    share = spec.serving.gpu_memory_utilization
    tokens = step_tokens(spec, gpu)
    numbers = tokens * mlp_width(request.checkpoint.text_config) / size
    memory = gpu_memory(weights, gpu, request.engine_version, share, numbers, adapters)
    assert memory is not None
    kv_bytes = 1 if base.kv_cache == "fp8" else 2
    speed = Speed(
        gpu=gpu,
        weights=weights,
        layers=request.layers,
        scheme=schemes()[base.scheme],
        kv_bytes=kv_bytes,
        tensor_parallel=size,
        hidden=request.checkpoint.text_config.get("hidden_size") or 0,
        context=context,
        step_tokens=tokens,
        graph_tokens=graph_tokens(spec, request.checkpoint.text_config, gpu),
    )

    def cache(length: int) -> CacheSize:
        return cache_size(
            request.layers,
            memory.cache_bytes,
            length=length,
            tensor_parallel=size,
            dtype_bytes=kv_bytes,
            step_tokens=CONCURRENT_STEPS * tokens,
        )

    longest = cache(context.max_model_len)
    per_instance = instance.gpu_count // size
    sized = base.model_copy(
        update={
            "tensor_parallel": size,
            "copies_per_instance": per_instance,
            "weights_gib": weights.gpu_bytes / GIB,
            "adapters_gib": adapters / GIB if adapters else None,
            "overhead_gib": memory.overhead_gib,
            "kv_gib": max(0.0, memory.cache_bytes) / GIB,
            "kv_tokens": longest.tokens,
            "longest_requests": longest.concurrency,
            "is_measured": memory.is_measured and gpu.measured,
        }
    )
    if longest.concurrency <= 1:
        return sized.model_copy(update={"reason": _too_small(sized, memory, context.max_model_len),
                                        "kv_tokens": 0})  # fmt: skip
    fitting = int(cache(context.mean_prompt + context.mean_output).concurrency)
    return _priced(request, sized, speed, fitting)


def step_tokens(spec: TextGenerationSpec, gpu: Gpu) -> int:
    """Return max_num_batched_tokens: the file's, or vLLM's own for the GPU."""
    if spec.serving.max_num_batched_tokens is not None:
        return spec.serving.max_num_batched_tokens
    return _step_sizes(gpu)[0]


def step_sequences(spec: TextGenerationSpec, gpu: Gpu) -> int:
    """Return max_num_seqs: the file's, or vLLM's own for the GPU."""
    if spec.serving.max_num_seqs is not None:
        return spec.serving.max_num_seqs
    return _step_sizes(gpu)[1]


def _step_sizes(gpu: Gpu) -> tuple[int, int]:
    memory = 0 if gpu.name.startswith("A100") else gpu.memory_gib or 0
    return next((tokens, most) for least, tokens, most in STEP_SIZES if memory >= least)


def _too_small(item: Candidate, memory: GpuMemory, length: int) -> str:
    extra = memory.extra_bytes / GIB
    usable = memory.cache_bytes / GIB + (item.weights_gib or 0) + extra + memory.overhead_gib
    beside = f"{extra:.1f} GiB of adapters, " if extra else ""
    return (
        f"{item.scheme} weights of {item.weights_gib:.1f} GiB a GPU, {beside}"
        f"{memory.overhead_gib:.1f} GiB of overhead and a KV cache for one request of {length} "
        f"tokens do not fit into {usable:.1f} GiB (tensor parallel {item.tensor_parallel})"
    )


def _priced(request: Request, item: Candidate, speed: Speed, fitting: int) -> Candidate:
    spec, slo = request.spec, request.spec.slo
    most = min(fitting, step_sequences(spec, speed.gpu))
    if most < 1:
        return item.model_copy(update={"reason": "not one request of the mean lengths fits"})
    if speed.is_known:
        most = speed.largest_concurrency(slo, most)
        if most < 1:
            return _too_slow(item, speed, spec)
    copies = max(math.ceil(slo.concurrency / most), spec.endpoint.copies.min, 1)
    instances = math.ceil(copies / item.copies_per_instance)
    hourly = request.price(item.instance_type)
    at_once = math.ceil(slo.concurrency / copies)
    changes: dict[str, object] = {
        "expected_requests": most,
        "copies": copies,
        "instances": instances,
        "usd_an_hour": None if hourly is None else hourly * instances,
        "holds": True,
    }
    if speed.is_known:
        seen = speed.experience(at_once)
        changes |= {"itl_ms": 1000 * seen.itl_p95, "ttft_ms": 1000 * seen.ttft_p95}
        if hourly is not None:
            rate = seen.tokens_per_second * slo.concurrency / at_once
            changes["usd_a_million_tokens"] = hourly * instances / 3600 / rate * TOKENS_A_MILLION
    if copies > spec.endpoint.copies.max:
        reason = (
            f"{slo.concurrency} requests at once need {copies} copies of {most}, and "
            f"endpoint.copies.max is {spec.endpoint.copies.max}"
        )
        changes |= {"holds": False, "reason": reason}
    return item.model_copy(update=changes)


def _too_slow(item: Candidate, speed: Speed, spec: TextGenerationSpec) -> Candidate:
    """Return a candidate that misses the SLO for one request alone."""
    seen, slo = speed.experience(1), spec.slo
    first, token = 1000 * seen.ttft_p95, 1000 * seen.itl_p95
    reason = f"a token takes {token:.0f} ms even alone, and slo.itl_p95_ms is {slo.itl_p95_ms:g}"
    if token <= slo.itl_p95_ms:
        reason = (
            f"a prompt of {spec.context.prompt_p95} tokens takes {first:.0f} ms to its first "
            f"token even alone, and slo.ttft_p95_ms is {slo.ttft_p95_ms:g}"
        )
    return item.model_copy(update={"itl_ms": token, "ttft_ms": first, "reason": reason})


FLOPS_A_PARAMETER = 2
"""Of one token: a multiplication and an addition."""
ALL_REDUCES = 2
"""Of a layer on several GPUs, each of a vector of 16-bit numbers a token."""
EIGHT_BITS, FOUR_BITS = 8.5, 5.0
"""Most bits of a weight that count as such, scales included."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One copy on one GPU type; lengths in tokens, times in seconds."""

    gpu: Gpu
    weights: Weights
    layers: Sequence[CacheLayers]
    scheme: SchemeRow
    kv_bytes: int
    tensor_parallel: int
    hidden: int
    """Numbers of a token between layers."""
    context: ContextSpec
    step_tokens: int
    graph_tokens: int
    """Most tokens of a step that CUDA graphs hold."""

    @property
    def is_known(self) -> bool:
        """True where the GPU's bandwidth and rate are known."""
        return self.gpu.gigabytes_per_second is not None and self.gpu.bf16_teraflops is not None

    @property
    def engine(self) -> Engine:
        """The engine as it is simulated."""
        row = engine_server()
        return Engine(
            step_seconds=self.step_times(),
            launch_seconds=self.launch_times(),
            is_one_process=self.tensor_parallel == 1,
            step_tokens=self.step_tokens,
            server=Server(
                request=row.request_ms / 1e3,
                latency=row.latency_ms / 1e3,
                chunk=row.chunk_us / 1e6,
                turns=row.turns,
            ),
        )

    @lru_cache(maxsize=4096)  # noqa: B019 - instance types of one GPU have equal engines
    def experience(self, users: int) -> Experience:
        """Return what so many users see who each ask again once they are answered."""
        context = self.context
        prompt = log_normal(context.mean_prompt, context.prompt_p95)
        output = log_normal(context.mean_output, context.output_p95)
        return simulate(self.engine, prompt, output, context.max_model_len, users)

    def step_times(self) -> Callable[[int, int, int], float]:
        """Return the function of a step's seconds, as `Engine.step_seconds` describes it.

        Prompts are computed while weights are read.
        """
        bandwidth = (self.gpu.gigabytes_per_second or 0.0) * 1e9
        rate = (self.gpu.bf16_teraflops or 0.0) * 1e12
        if not self.gpu.measured:
            bandwidth *= datasheet_shares().bandwidth
            rate *= datasheet_shares().rate
        count, speed = sum(item.count for item in self.layers), self._format
        link, size = all_reduce(nvlink=self.gpu.nvlink), self.tensor_parallel
        weights = self.weights.gpu_bytes / bandwidth
        always, token = count * speed.layer_us * 1e-6, 0.0
        if size > 1:
            always += count * ALL_REDUCES * link.microseconds * 1e-6
            sent = count * ALL_REDUCES * self.hidden * BYTES_16 * 2 * (size - 1) / size
            token = sent / (link.gigabytes_per_second * 1e9)
        flops = FLOPS_A_PARAMETER * self.weights.layer_parameters
        prompt = flops / (rate * speed.prefill * size)

        has_windows = any(item.window is not None for item in self.layers)
        token_bytes = bytes_read(self.layers, size, self.kv_bytes, 1)

        def seconds(prompts: int, requests: int, cached: int) -> float:
            found = always + max(weights, prompts * prompt) + (prompts + requests) * token
            if has_windows and requests:
                read = bytes_read(self.layers, size, self.kv_bytes, cached / requests)
                return found + requests * read / bandwidth
            return found + cached * token_bytes / bandwidth

        return seconds

    def launch_times(self) -> Callable[[int, int], float]:
        """Return the function of the CPU's seconds, as `Engine.launch_seconds` describes it.

        A step without prompts is one CUDA graph, where there are graphs.
        """
        layers, speed = sum(item.count for item in self.layers), self._format
        pieces, eager = layers * speed.pieces_us, layers * speed.eager_us
        core, most = engine_server().core_us, self.graph_tokens

        def seconds(prompts: int, requests: int) -> float:
            found = requests * core
            if prompts or not most:
                found += pieces if prompts + requests <= most else eager
            return found * 1e-6

        return seconds

    def largest_concurrency(self, slo: GenerationSloSpec, most: int) -> int:
        """Return how many requests at once, of at most so many, hold both limits."""
        low, high = 0, 1
        while high <= most and self.holds(slo, high):
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(slo, middle) else (low, middle)
        return low

    def holds(self, slo: GenerationSloSpec, users: int) -> bool:
        """Return whether so many users see times within both limits."""
        seen = self.experience(users)
        return 1000 * seen.ttft_p95 <= slo.ttft_p95_ms and 1000 * seen.itl_p95 <= slo.itl_p95_ms

    @property
    def _format(self) -> FormatSpeed:
        bits = self.scheme.weight_bits
        if bits > EIGHT_BITS:
            return format_speed("sixteen_bit")
        if bits > FOUR_BITS:
            return format_speed("eight_bit")
        return format_speed("four_bit_weight_only" if self.scheme.weight_only else "four_bit")

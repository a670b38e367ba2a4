"""Text generators of real shapes with random weights: predictions, server, load.

`python -m tests.gpu.generation OUT` writes the predictions of every cell, before they run. vLLM is
the machine's: `VLLM_PYTHON` names a Python that imports it, by default this one.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onboarding.text_generation.checkpoint import Checkpoint
from onboarding.text_generation.cuda_graphs import VLLM_GRAPH_TOKENS
from onboarding.text_generation.gpu_memory import gpu_memory, mlp_width
from onboarding.text_generation.kv_cache import CacheSize, cache_layers, cache_size
from onboarding.text_generation.planner import CONCURRENT_STEPS, Speed
from onboarding.text_generation.platforms import gpus, schemes
from onboarding.text_generation.spec import ContextSpec, GenerationSloSpec
from onboarding.text_generation.weights import count_weights
from roundhouse.measure.destination import Destination
from roundhouse.measure.generation import GenerationRunner, GenerationTest
from roundhouse.measure.measurement import percentile
from roundhouse.measure.options import STREAMS, LoadOptions, closed_phase
from roundhouse.measure.prompts import WORDS, lengths_of
from roundhouse.measure.streams import AnswerTimes
from tests.unit.onboarding.text_generation.shapes import headers

ROOT = Path(__file__).resolve().parents[2]
PREDICTIONS = ROOT / "docs" / "benchmarks" / "generation-predictions-2026-11-30e.json"
PYTHON = os.environ.get("VLLM_PYTHON", sys.executable)
GPU, VERSION, UTILIZATION, STEP_TOKENS = "H200", "0.26.0", 0.85, 8192
CONTEXT = ContextSpec(
    max_model_len=8192, prompt_mean=512, prompt_p95=1024, output_mean=128, output_p95=256
)
FEWEST, MOST = 16, 256
"""Requests at once, of loads."""
AROUND = (0.8, 1.0, 1.25)
"""Loads at shares of the planned knee, between which the measured one lies if it is as planned."""
LEAST_SECONDS, MOST_SECONDS, ANSWERS = 12.0, 24.0, 400
"""Of a load: so many answers follow the first one of each user, as predicted."""
ALONE, ALONE_SECONDS, ALONE_TOKENS = (256, 512, 1024, 2048, 4096), 1.5, 2
"""Tokens of prompts that one user sends, for so long each, and of their answers."""
WARM_UP_SECONDS = 4.0
"""Of a few users, before the first load of an engine, which compiles what it meets first."""
MODEL = "chat"
CHAT, INVOCATIONS = "/v1/chat/completions", "/invocations"
READY_SECONDS, STOP_SECONDS = 300, 40
VARIABLES = {
    # NVLink's multicast puts GPUs that others share out of service; FlashInfer is not there.
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
WITH_PORT = 'echo "$SM_VLLM_PORT" > "$1"; shift; exec "$@" --port "$SM_VLLM_PORT"'
"""The engine's command gets its port from our server, and leaves it in a file."""
FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "format": "float-quantized",
            "weights": {**FP8, "strategy": "channel", "dynamic": False},
            "input_activations": {**FP8, "strategy": "token", "dynamic": True},
            "output_activations": None,
        }
    },
    "ignore": ["lm_head"],
}
"""As llm-compressor writes it for our recipe of FP8."""


def _config(kind: str, hidden: int, layers: int, heads: int, wide: int, words: int) -> Any:
    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": wide,
        "vocab_size": words,
        "max_position_embeddings": 32_768,
        "rope_theta": 500_000.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


SHAPES = {
    "8b": _config("llama", 4096, 32, 32, 14_336, 128_256),
    "14b": _config("qwen3", 5120, 40, 40, 17_408, 151_936),
    "24b": _config("llama", 5120, 40, 32, 32_768, 131_072),
    "32b": _config("qwen3", 5120, 64, 64, 25_600, 151_936),
    "70b": _config("llama", 8192, 80, 64, 28_672, 128_256),
    "tiny": {**_config("llama", 256, 2, 2, 512, 1024), "num_key_value_heads": 2},
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One engine: shape, number format and GPUs; `itl_ms`: what its SLO limits, beside TTFT."""

    shape: str
    scheme: str
    tensor_parallel: int
    itl_ms: float
    graph_tokens: int = VLLM_GRAPH_TOKENS

    def __str__(self) -> str:
        graphs = f"-graphs-{self.graph_tokens}" if self.sets_graphs else ""
        return f"{self.shape}-{self.scheme}-tp{self.tensor_parallel}{graphs}"

    @property
    def sets_graphs(self) -> bool:
        """True where its graphs are not vLLM's own."""
        return self.graph_tokens != VLLM_GRAPH_TOKENS

    @property
    def arguments(self) -> tuple[str, ...]:
        """The engine's, beside those of its server."""
        graphs = ("--max-cudagraph-capture-size", str(self.graph_tokens))
        share = ("--gpu-memory-utilization", str(UTILIZATION))
        return (*share, *graphs) if self.sets_graphs else share

    @property
    def slo(self) -> GenerationSloSpec:
        """The limits within which its knee lies."""
        return GenerationSloSpec(ttft_p95_ms=1000, itl_p95_ms=self.itl_ms, concurrency=1)

    @property
    def checkpoint(self) -> Checkpoint:
        """Its headers, in BF16."""
        found: Checkpoint = headers(SHAPES[self.shape])
        return found

    def speed(self) -> Speed:
        """Return the planner's times."""
        scheme = schemes()[self.scheme]
        return Speed(
            gpu=gpus()[GPU],
            weights=count_weights(self.checkpoint, scheme, self.tensor_parallel),
            layers=cache_layers(self.checkpoint.config),
            scheme=scheme,
            kv_bytes=2,
            tensor_parallel=self.tensor_parallel,
            hidden=SHAPES[self.shape]["hidden_size"],
            context=CONTEXT,
            step_tokens=STEP_TOKENS,
            graph_tokens=self.graph_tokens,
        )

    def cache(self, utilization: float, length: int) -> CacheSize:
        """Return the planner's KV cache for requests of a length."""
        speed = self.speed()
        numbers = STEP_TOKENS * mlp_width(SHAPES[self.shape]) / self.tensor_parallel
        memory = gpu_memory(speed.weights, speed.gpu, VERSION, utilization, numbers)
        assert memory is not None
        return cache_size(
            speed.layers,
            memory.cache_bytes,
            length=length,
            tensor_parallel=self.tensor_parallel,
            step_tokens=CONCURRENT_STEPS * STEP_TOKENS,
        )

    def predict(self) -> dict[str, Any]:
        """Return what the planner says, in the words of `measure`."""
        speed, size, loads = self.speed(), self.cache(UTILIZATION, CONTEXT.max_model_len), {}
        most = speed.largest_concurrency(self.slo, MOST)
        for users in sorted({FEWEST, *(round(share * most) for share in AROUND)}):
            seen = speed.experience(users)
            loads[str(users)] = {
                "ttft_p95_ms": round(1000 * seen.ttft_p95, 1),
                "itl_p95_ms": round(1000 * seen.itl_p95, 2),
                "tokens_per_second": round(seen.tokens_per_second),
            }
        return {"kv_tokens": size.tokens, "loads": loads, "itl_ms": self.itl_ms, "knee": most}


CELLS = [
    Cell(shape="8b", scheme="bf16", tensor_parallel=2, itl_ms=30),
    Cell(shape="14b", scheme="bf16", tensor_parallel=2, itl_ms=50),
    Cell(shape="70b", scheme="fp8", tensor_parallel=2, itl_ms=150),
    Cell(shape="14b", scheme="bf16", tensor_parallel=1, itl_ms=50),
    Cell(shape="8b", scheme="fp8", tensor_parallel=1, itl_ms=30),
    Cell(shape="24b", scheme="fp8", tensor_parallel=1, itl_ms=50),
    Cell(shape="8b", scheme="bf16", tensor_parallel=1, itl_ms=30),
    Cell(shape="8b", scheme="fp8", tensor_parallel=1, itl_ms=30, graph_tokens=2048),
]
TINY = Cell(shape="tiny", scheme="bf16", tensor_parallel=1, itl_ms=100)


def seconds_of(prediction: Mapping[str, Any], users: int) -> float:
    """Return how long a load is to last."""
    rate: float = prediction["loads"][str(users)]["tokens_per_second"]
    needed = (users + ANSWERS) * CONTEXT.mean_output / rate
    return min(max(LEAST_SECONDS, needed), MOST_SECONDS)


def write_checkpoint(cell: Cell, folder: Path) -> Path:
    """Write config.json and a tokenizer of single words, which vLLM fills with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(SHAPES[cell.shape])
    if cell.scheme == "fp8":
        config["quantization_config"] = QUANTIZATION
    words = dict.fromkeys(("<s>", "</s>", "<unk>", *WORDS))
    others = (f"w{number}" for number in range(config["vocab_size"] - len(words)))
    vocabulary = {word: number for number, word in enumerate((*words, *others))}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
    for name, document in (
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
    ):
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    return folder


@dataclass(kw_only=True)
class Served:
    """Our server before vLLM, as the container starts it; `port` is ours, `engine_port` vLLM's."""

    cell: Cell
    folder: Path
    arguments: Sequence[str] = ()
    port: int = 0
    ready_seconds: float = 0.0
    process: Any = field(default=None)

    @property
    def log(self) -> str:
        """What both wrote."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def reasons(self) -> str:
        """The lines that name an error, and the log's end."""
        lines = [line for line in self.log.splitlines() if "Error: " in line]
        return "\n".join([*lines, self.log[-2000:]])

    @property
    def engine_port(self) -> int:
        return int((self.folder / "port").read_text())

    def url(self, path: str, *, is_direct: bool = False) -> str:
        """Return a path's URL at our server, or past it at vLLM's."""
        return f"http://127.0.0.1:{self.engine_port if is_direct else self.port}{path}"

    def start(self) -> Served:
        """Start both; return once /ping is answered by 200. Raises AssertionError."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        checkpoint = write_checkpoint(self.cell, self.folder / "checkpoint")
        engine = (
            *(PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint)),
            *("--load-format", "dummy", "--served-model-name", MODEL, "--host", "127.0.0.1"),
            *("--max-model-len", str(CONTEXT.max_model_len), *self.arguments),
            *("--tensor-parallel-size", str(self.cell.tensor_parallel)),
        )
        variables = {
            **os.environ,
            **VARIABLES,
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            "SM_VLLM_SERVED_MODEL_NAME": MODEL,
            "SM_VLLM_MAX_MODEL_LEN": str(CONTEXT.max_model_len),
            "SM_VLLM_MAX_NUM_QUEUED_REQS": "1024",
        }
        front = (sys.executable, "-m", "container.server", "vllm")
        begin = time.monotonic()
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                (*front, "sh", "-c", WITH_PORT, "sh", str(self.folder / "port"), *engine),
                cwd=ROOT,
                env=variables,
                stdout=log,
                stderr=log,
            )
        while not is_ready(self.url("/ping")):
            is_late = time.monotonic() > begin + READY_SECONDS
            assert self.process.poll() is None and not is_late, self.reasons
            time.sleep(0.2)
        self.ready_seconds = time.monotonic() - begin
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        try:
            return int(self.process.wait(STOP_SECONDS))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return int(self.process.wait())


def is_ready(url: str) -> bool:
    """Return whether a path is answered by 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def measure_alone(served: Served) -> dict[int, float]:
    """Return the time to the first token of one user's prompts by their tokens, p50 in ms."""
    found = {}
    for tokens in ALONE:
        context = ContextSpec(
            max_model_len=CONTEXT.max_model_len,
            prompt_mean=tokens,
            prompt_p95=tokens,
            output_mean=ALONE_TOKENS,
            output_p95=ALONE_TOKENS,
        )
        found[tokens] = measure(served, 1, ALONE_SECONDS, context)["ttft_p50_ms"]
    return found


def measure(
    served: Served, users: int, seconds: float, context: ContextSpec = CONTEXT
) -> dict[str, Any]:
    """Return what users see of our server once each of them was answered, until the load ends."""
    options = LoadOptions(url=served.url(INVOCATIONS), warm_up=0)
    test = GenerationTest(
        subject=f"{users} at once",
        destination=Destination(url=served.url(INVOCATIONS)),
        phases=(closed_phase(f"{users} at once", users, seconds),),
        options=options,
        slo=None,
        client=STREAMS,
        model=MODEL,
        lengths=lengths_of(context),
        first_concurrency=1,
    )
    runner, before = GenerationRunner(test=test), engine_times(served)
    run_loop(runner.run())
    (phase,) = runner.phases
    assert not phase.failed, phase.errors
    return {
        **steady(phase.answers, users, seconds),  # type: ignore[attr-defined]
        "tool_cpu": round(phase.cpu_share, 2),
        "engine": engine_means(before, engine_times(served)),
    }


ENGINE_TIMES = re.compile(
    r"^vllm:(request_queue_time|request_prefill_time|time_to_first_token|inter_token_latency)"
    r"_seconds_(sum|count){.*} (\S+)$",
    re.MULTILINE,
)


def engine_times(served: Served) -> dict[str, float]:
    """Return the sums and counts of what vLLM itself measures, in seconds."""
    with urllib.request.urlopen(served.url("/metrics", is_direct=True), timeout=10) as answer:
        text = answer.read().decode()
    return {f"{name} {kind}": float(value) for name, kind, value in ENGINE_TIMES.findall(text)}


def engine_means(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what vLLM measured on average between two readings of its metrics, in ms."""
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    names = sorted({name.split()[0] for name in grown})
    return {
        f"{name}_ms": round(1000 * grown[f"{name} sum"] / max(grown[f"{name} count"], 1), 2)
        for name in names
    }


def run_loop(work: Any) -> Any:
    """Run a coroutine on the load tool's event loop."""
    import uvloop

    return uvloop.run(work)


def steady(answers: Sequence[AnswerTimes], users: int, seconds: float) -> dict[str, float]:
    """Return the numbers from the first answer of every user to the load's end."""
    begin = sorted(item.due + item.latency for item in answers)[users - 1]
    end = min(item.due for item in answers) + seconds
    firsts = [1000 * item.ttft for item in answers if begin <= item.due < end]
    chunks = [
        item.tokens.output_tokens / len(item.tokens.chunks)
        for item in answers
        for moment in item.tokens.chunks
        if begin <= moment < end
    ]
    gaps = [
        1000 * (later - earlier)
        for item in answers
        for earlier, later in zip(item.tokens.chunks, item.tokens.chunks[1:], strict=False)
        if begin <= earlier and later < end
    ]
    return {
        "answers": len(firsts),
        "ttft_p50_ms": round(percentile(firsts, 50) or 0.0, 1),
        "ttft_p95_ms": round(percentile(firsts, 95) or 0.0, 1),
        "itl_p50_ms": round(percentile(gaps, 50) or 0.0, 2),
        "itl_p95_ms": round(percentile(gaps, 95) or 0.0, 2),
        "itl_mean_ms": round(sum(gaps) / max(len(gaps), 1), 2),
        "tokens_per_second": round(sum(chunks) / (end - begin)),
        "tokens_a_chunk": round(sum(chunks) / len(chunks), 2),
    }


def knee(loads: Mapping[int, Mapping[str, float]], slo: GenerationSloSpec) -> tuple[float, float]:
    """Return the requests at once at which a limit is reached, and the tokens a second there.

    Between two loads by a straight line; where the highest holds, the highest.
    """
    rows = sorted(loads.items())
    below = (0.0, dict.fromkeys(("ttft_p95_ms", "itl_p95_ms", "tokens_per_second"), 0.0))
    for users, seen in rows:
        parts = [1.0]
        for name, limit in (("ttft_p95_ms", slo.ttft_p95_ms), ("itl_p95_ms", slo.itl_p95_ms)):
            if seen[name] > limit:
                parts.append((limit - below[1][name]) / (seen[name] - below[1][name]))
        part = max(0.0, min(parts))
        if part < 1:
            rate = below[1]["tokens_per_second"]
            rate += part * (seen["tokens_per_second"] - rate)
            return below[0] + part * (users - below[0]), rate
        below = (float(users), dict(seen))
    return below[0], below[1]["tokens_per_second"]


def bench_tools(work: Path) -> Callable[[Sequence[str]], dict[str, Any]]:
    """Return a function that runs `vllm bench serve`, all runs in one process."""
    process = subprocess.Popen(
        (PYTHON, "-c", BENCH_SERVE),
        env={**os.environ, **VARIABLES},
        stdin=subprocess.PIPE,
        stdout=(work / "bench-serve.log").open("wb"),
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    numbers = iter(range(1000))

    def run(arguments: Sequence[str]) -> dict[str, Any]:
        result = work / f"bench-serve-{next(numbers)}.json"
        assert process.stdin is not None
        words = [*arguments, "--save-result", f"--result-filename={result}"]
        print(json.dumps(words), file=process.stdin, flush=True)
        end = time.monotonic() + 180
        while not result.is_file() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.3)
        assert result.is_file(), (work / "bench-serve.log").read_text(errors="replace")[-3000:]
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    return run


BENCH_SERVE = """
import argparse, json, sys
from vllm.benchmarks.serve import add_cli_args, main
for line in sys.stdin:
    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args(json.loads(line)))
"""


def serve_arguments(
    served: Served, users: int, requests: int, seed: int, *, is_direct: bool
) -> list[str]:
    """Return the arguments of `vllm bench serve`: chats of 512 tokens in and 128 out."""
    arguments = {
        "backend": "openai-chat",
        "base-url": served.url("", is_direct=is_direct),
        "endpoint": CHAT,
        "model": str(served.folder / "checkpoint"),
        "served-model-name": MODEL,
        "dataset-name": "random",
        "random-input-len": 512,
        "random-output-len": 128,
        "num-prompts": requests,
        "max-concurrency": users,
        "seed": seed,
        "percentile-metrics": "ttft,tpot,itl,e2el",
    }
    words = (f"--{name}={value}" for name, value in arguments.items())
    return [*words, "--ignore-eos", "--disable-tqdm"]


async def stream_whole(url: str, count: int, tokens: int, act: Callable[[], None]) -> list[str]:
    """Send streams at once, act once all have begun, and return the last event of each."""
    import aiohttp

    begun, ends = asyncio.Semaphore(0), []

    async def one(session: aiohttp.ClientSession) -> None:
        body = {"messages": [{"role": "user", "content": "the " * 64}], "max_tokens": tokens,
                "ignore_eos": True, "stream": True, "model": MODEL}  # fmt: skip
        data, is_begun = b"", False
        try:
            async with session.post(url, json=body) as answer:
                async for part in answer.content.iter_any():
                    data += part
                    if not is_begun and b'"content"' in data:
                        is_begun = True
                        begun.release()
            ends.append(data.strip().split(b"\n")[-1].decode(errors="replace"))
        except (aiohttp.ClientError, OSError) as error:
            ends.append(f"{type(error).__name__}: {error}")
            if not is_begun:
                begun.release()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(one(session)) for _ in range(count)]
        for _ in range(count):
            await begun.acquire()
        act()
        await asyncio.gather(*tasks)
    return ends


def predictions() -> dict[str, Any]:
    """Return what the planner says of every cell."""
    return {
        "gpu": GPU,
        "engine_version": VERSION,
        "gpu_memory_utilization": UTILIZATION,
        "context": CONTEXT.model_dump(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cells": {str(cell): cell.predict() for cell in CELLS},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(predictions(), indent=1) + "\n", encoding="utf-8")

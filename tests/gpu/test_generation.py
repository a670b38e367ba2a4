"""Text generators on one GPU and on two: as planned, behind our server, by both load tools.

Random weights of real shapes in the machine's vLLM. What the planner says was written before
(`docs/benchmarks/generation-predictions-2026-11-30e.json`); rows that need two GPUs say so.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the load tool needs aiohttp")

from tests.gpu.generation import (
    CELLS,
    CHAT,
    INVOCATIONS,
    PREDICTIONS,
    PYTHON,
    ROOT,
    TINY,
    WARM_UP_SECONDS,
    Served,
    bench_tools,
    knee,
    measure,
    measure_alone,
    run_loop,
    seconds_of,
    serve_arguments,
    stream_whole,
)

pytestmark = pytest.mark.gpu
KV_BAR, WORST_BAR, FRONT_BAR, TOOLS_BAR = 0.01, 0.25, 0.95, 0.03
ROUNDS, FEW_USERS = 3, 4
STREAMS, STREAM_TOKENS = 64, 512
GONE_SECONDS = 30.0
KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
TOOL_USERS, TOOL_REQUESTS = 32, 800


@functools.cache
def gpu_count() -> int:
    """Return how many GPUs this process may use; 0 without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    listing = subprocess.run((program, "--list-gpus"), capture_output=True, check=True).stdout
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(chosen.split(",")) if chosen else listing.count(b"UUID")


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Return a function that starts a cell's server, or gives the one that runs."""
    running: list[Served] = []

    def start(cell, *arguments):
        if sys.executable == PYTHON and importlib.util.find_spec("vllm") is None:
            pytest.skip("needs vLLM: VLLM_PYTHON=the Python that imports it")
        if cell is not TINY and gpu_count() < cell.tensor_parallel:
            pytest.skip(f"needs {cell.tensor_parallel} GPUs of compute capability 9.0")
        if running and (running[0].cell != cell or running[0].process.poll() is not None):
            running.pop().stop()
        if not running:
            served = Served(
                cell=cell, folder=tmp_path_factory.mktemp(str(cell)), arguments=arguments
            )
            running.append(served)
            served.start()
        return running[0]

    yield start
    for served in running:
        served.stop()


@pytest.fixture(scope="module")
def bench_serve(tmp_path_factory):
    """`vllm bench serve`, all runs in one process."""
    return bench_tools(tmp_path_factory.mktemp("bench-serve"))


@pytest.fixture
def two(serve):
    """The server of 8B on two GPUs."""
    return serve(CELLS[0], *CELLS[0].arguments)


def check_plan(cell, serve, record_property):
    """Load a cell, and keep how far its prediction was off."""
    prediction = json.loads(PREDICTIONS.read_text())["cells"][str(cell)]
    served = serve(cell, *cell.arguments)
    tokens = int(KV_TOKENS.findall(served.log)[-1].replace(",", ""))
    measure(served, FEW_USERS, WARM_UP_SECONDS)
    loads = {
        users: measure(served, users, seconds_of(prediction, users))
        for users in map(int, prediction["loads"])
    }
    alone = measure_alone(served)
    most, rate = knee(loads, cell.slo)
    record_property("prediction", prediction)
    record_property("loads", loads)
    record_property("alone", alone)
    record_property("ready_seconds", round(served.ready_seconds, 1))
    found = {"kv_tokens": tokens, "knee": round(most, 1)}
    errors = {name: value / prediction[name] - 1 for name, value in found.items()}
    for users, seen in loads.items():
        for name in ("ttft_p95_ms", "itl_p95_ms", "tokens_per_second"):
            errors[f"{name} {users}"] = seen[name] / prediction["loads"][str(users)][name] - 1
    record_property("measured", {**found, "tokens_per_second_at_the_knee": round(rate)})
    record_property("errors", {name: round(value, 3) for name, value in errors.items()})
    assert abs(errors["kv_tokens"]) <= KV_BAR
    assert max(map(abs, errors.values())) <= WORST_BAR, errors


def test_8b_on_two_gpus_is_as_planned(serve, record_property):
    check_plan(CELLS[0], serve, record_property)


def test_our_server_costs_a_twentieth_at_most(two, bench_serve, record_property):
    ratios, controls = [], []
    for number in range(ROUNDS):
        rates = {}
        names = ["ours", "direct", "again"]
        random.Random(number).shuffle(names)
        for position, name in enumerate(names):
            seed = 10 * number + position
            found = bench_serve(serve_arguments(two, 128, 384, seed, is_direct=name != "ours"))
            assert found["completed"] == 384
            rates[name] = found["output_throughput"]
        ratios.append(rates["ours"] / statistics.mean((rates["direct"], rates["again"])))
        controls.append(rates["again"] / rates["direct"])
    record_property("ours_of_direct", ratios)
    record_property("direct_twice", controls)
    assert statistics.median(ratios) >= FRONT_BAR


def test_both_load_tools_agree(two, bench_serve, record_property):
    rows = []
    for seed in range(4):
        if seed in (0, 3):
            arguments = serve_arguments(two, TOOL_USERS, TOOL_REQUESTS, seed, is_direct=True)
            found = bench_serve(arguments)
            seconds = found["duration"]
            names = {"ttft": "median_ttft_ms", "itl": "median_itl_ms", "tpot": "mean_tpot_ms"}
            seen = {name: found[key] for name, key in names.items()}
            rows.append(("vllm", {**seen, "tokens/s": found["output_throughput"]}))
            continue
        command = (
            *(sys.executable, "-m", "roundhouse", "bench", "--url", two.url(CHAT, is_direct=True)),
            *("--model", "chat", "--input", "512:128", "--users", str(TOOL_USERS)),
            *("--seconds", f"{0.95 * seconds:.0f}", "--format", "json"),
        )
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:] + ended.stdout[-2000:]
        phase = json.loads(ended.stdout)["phases"][0]
        record_property(f"ours {seed}", phase)
        rows.append(("ours", numbers_of(phase)))
    keys = ("ttft", "itl", "tpot", "tokens/s")
    means = {
        tool: {key: statistics.mean(row[key] for name, row in rows if name == tool) for key in keys}
        for tool in ("vllm", "ours")
    }
    ratios = {key: means["ours"][key] / means["vllm"][key] for key in keys}
    record_property("rows", rows)
    record_property("ours_of_vllm", ratios)
    assert all(abs(ratios[key] - 1) <= TOOLS_BAR for key in ("itl", "tpot", "tokens/s")), ratios


def numbers_of(phase):
    """Return the numbers that both tools have, of a phase of `roundhouse bench`."""
    times = phase["times_ms"]
    return {
        "ttft": times["ttft"]["p50"],
        "itl": times["itl"]["p50"],
        "tpot": times["tpot"]["mean"],
        "tokens/s": phase["output_tokens_per_second"],
    }


def test_sigterm_cuts_no_stream(two, record_property):
    ends = run_loop(
        stream_whole(
            two.url(INVOCATIONS),
            STREAMS,
            STREAM_TOKENS,
            lambda: two.process.send_signal(signal.SIGTERM),
        )
    )
    code = two.process.wait(60)
    cut = [end for end in ends if end != "data: [DONE]"]
    record_property("streams", len(ends))
    record_property("cut", cut)
    assert code == 0 and not cut


@pytest.mark.parametrize("cell", CELLS[1:3], ids=str)
def test_two_gpus_are_as_planned(cell, serve, record_property):
    check_plan(cell, serve, record_property)


def test_dead_rank_ends_the_container(serve, record_property):
    served = serve(CELLS[2], *CELLS[2].arguments)
    (rank,) = processes_named(b"Worker_TP1")
    begin = time.monotonic()
    kill = functools.partial(os.kill, rank, signal.SIGKILL)
    ends = run_loop(stream_whole(served.url(INVOCATIONS), 8, 2048, kill))
    code = served.process.wait(GONE_SECONDS * 2)
    seconds = time.monotonic() - begin
    record_property("seconds", round(seconds, 1))
    record_property("exit_code", code)
    record_property("streams_end_with", sorted(set(ends)))
    assert code != 0 and seconds <= GONE_SECONDS
    assert "data: [DONE]" not in ends


def processes_named(word):
    """Return the processes whose command line has a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [int(path.parent.name)] if word in path.read_bytes() else []
    return found


@pytest.mark.parametrize("cell", CELLS[3:], ids=str)
def test_one_gpu_is_as_planned(cell, serve, record_property):
    check_plan(cell, serve, record_property)


def test_model_that_does_not_fit_is_refused_by_the_plan_and_by_vllm(serve, record_property):
    """With so little memory the cache holds fewer tokens than one longest request has."""
    share, cell = "0.09", CELLS[4]
    size = cell.cache(float(share), 32_768)
    assert size.concurrency <= 1
    arguments = ("--gpu-memory-utilization", share, "--max-model-len", "32768", "--enforce-eager")
    with pytest.raises(AssertionError) as refusal:
        serve(cell, *arguments)
    words = re.findall(r"ValueError: .*", str(refusal.value)) or [str(refusal.value)[-300:]]
    record_property("planned_tokens", size.tokens)
    record_property("vllm", words[-1][:400])
    assert "KV cache" in words[-1]

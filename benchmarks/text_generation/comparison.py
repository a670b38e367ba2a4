"""Our load test of a text generator and `vllm bench serve`, one after the other on one server.

Both send the prompts of one file, as many at once, for answers of the same lengths, as text
completions. A round runs vLLM's tool twice and ours once in random order: the ratio of vLLM's two
runs is what the server alone makes of it.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.measure import Context, Measure, at_least, at_most, of_rounds, with_command
from benchmarks.servers.running_server import Candidate, free_port, start_server
from roundhouse.measure.destination import Destination
from roundhouse.measure.generation import GenerationRunner, GenerationTest
from roundhouse.measure.options import LoadOptions, at_once, closed_phase
from roundhouse.measure.prompts import WORDS, read_prompts
from roundhouse.measure.slo import ITL, TTFT, Slo, stream_slo
from roundhouse.measure.streams import StreamMeasurement, metrics

ROUNDS = 6
LONGEST_SECONDS = 3600.0
"""Of one run, which ends after its requests."""
LAYERS = 32
"""Of the random Llama: with 4, vLLM's own HTTP server took longer than the model, and events came
in clumps that each run has otherwise."""
NAME = "tiny"
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
Tool = Callable[[Slo], Numbers]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What both tools do."""

    url: str
    model: str
    """The served name."""
    tokenizer: Path
    folder: Path
    """Of prompts, logs and results."""
    requests: int = 64
    at_once: int = 4
    prompt_words: int = 48
    output_tokens: int = 48

    @property
    def prompts(self) -> Path:
        """Return the file that both read."""
        return self.folder / "prompts.jsonl"

    def write_prompts(self) -> None:
        """Write as many prompts as requests, no two alike."""
        chance = random.Random(7)
        with self.prompts.open("w", encoding="utf-8") as file:
            for _ in range(self.requests):
                prompt = " ".join(chance.choices(WORDS, k=self.prompt_words))
                line = {"prompt": prompt, "output_tokens": self.output_tokens}
                print(json.dumps(line), file=file)


def text_generation(context: Context) -> list[Measure]:
    """Return ratios of our numbers to vLLM's, and the control. Raises ValueError without vllm-cpu.

    The server's model is random: what is compared is two clocks on answers of the same lengths.
    """
    python = context.paths.venv_python("vllm")
    if not python.exists():
        raise ValueError(
            "the environment vllm is missing; "
            "`python -m roundhouse.dev.environments vllm` makes it."
        )
    folder = context.empty_folder("text_generation")
    _write_checkpoint(context, folder / "checkpoint")
    environment = {**context.variables, **CPU}
    server = served_checkpoint(python, folder, environment)
    with start_server(server, folder / "server.log"):
        url = f"http://127.0.0.1:{server.port}"
        load = Load(url=url, model=NAME, tokenizer=folder / "checkpoint", folder=folder)
        rounds = compare_tools(load, python, environment, context.rounds(ROUNDS))
    return with_command(COMMAND, measures(rounds))


def compare_tools(
    load: Load, python: Path, environment: Mapping[str, str], rounds: int
) -> list[Mapping[str, Numbers]]:
    """Return the numbers of each round, by tool and by name; they are in the folder too.

    The first run of each is not counted, and the SLO of all rounds follows from it: most answers
    hold it, and some do not.
    """
    load.write_prompts()
    found: list[Mapping[str, Numbers]] = []
    with vllm_tool(load, python, environment) as vllm:
        loose = stream_slo(ttft_ms=1e6, itl_ms=1e6)
        our_numbers(load, loose)
        first = vllm(loose)
        slo = stream_slo(ttft_ms=2 * first["p75_ttft_ms"], itl_ms=1.2 * first["p75_tpot_ms"])
        tools: dict[str, Callable[[], Numbers]] = {
            "vllm": lambda: common_numbers(vllm(slo)),
            "again": lambda: common_numbers(vllm(slo)),
            "ours": lambda: our_numbers(load, slo),
        }
        for number in range(rounds):
            order = random.Random(number).sample(sorted(tools), len(tools))
            found.append({name: tools[name]() for name in order})
    text = json.dumps({"slo": str(slo), "rounds": found}, indent=1)
    (load.folder / "rounds.json").write_text(text + "\n", encoding="utf-8")
    return found


def measures(rounds: Sequence[Mapping[str, Numbers]]) -> list[Measure]:
    """Return the medians of the rounds' ratios, and those of the control."""
    found = []
    for name in SAME:
        whole = [row for row in rounds if row["vllm"][name] and row["again"][name]]
        pairs = [(row["vllm"][name], row["again"][name], row["ours"][name]) for row in whole]
        ratios = [ours / statistics.fmean((one, other)) for one, other, ours in pairs]
        title = f"{name}, ours / vllm bench serve"
        if name in WITHIN:
            found += [of_rounds(title, ratios, "x", bar) for bar in (at_least(0.95), at_most(1.05))]
        else:
            found.append(of_rounds(title, ratios, "x"))
        control = [other / one for one, other, _ in pairs]
        found.append(of_rounds(f"{name}, vllm bench serve twice", control, "x"))
    return found


def common_numbers(result: Mapping[str, float]) -> Numbers:
    """Return vLLM's numbers by the common names."""
    return {name: result[theirs] for name, (theirs, _, _) in SAME.items()}


def our_numbers(load: Load, slo: Slo) -> Numbers:
    """Run our load test as `roundhouse bench --url` does, and return its numbers."""
    test = GenerationTest(
        subject=load.model,
        destination=Destination(url=f"{load.url}/v1/completions"),
        schema="completion",
        model=load.model,
        workload=read_prompts(load.prompts, None),
        slo=slo,
        first_concurrency=1,
        phases=(closed_phase(at_once(load.at_once), load.at_once, LONGEST_SECONDS, load.requests),),
        options=LoadOptions(url=load.url, warm_up=0, input=load.prompts),
    )
    runner = GenerationRunner(test=test)
    uvloop.run(runner.run())
    (phase,) = runner.phases
    assert isinstance(phase, StreamMeasurement)
    require_whole(load, phase)
    found = metrics(phase)
    return {name: float(found[metric][field]) for name, (_, metric, field) in SAME.items()}


def require_whole(load: Load, phase: StreamMeasurement) -> None:
    """Raise ValueError where a request failed or an answer has another length."""
    lengths = {answer.tokens.output_tokens for answer in phase.answers}
    if phase.failed or len(phase.answers) != load.requests or lengths != {load.output_tokens}:
        raise ValueError(f"{len(phase.answers)} answers of {lengths} tokens, {phase.errors}")


@contextlib.contextmanager
def vllm_tool(load: Load, python: Path, environment: Mapping[str, str]) -> Iterator[Tool]:
    """Start the process of vLLM's tool; give what runs it once."""
    program, log = Path(__file__).with_name("vllm_runner.py"), load.folder / "runner.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            (str(python), str(program)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=dict(environment),
            text=True,
        )

    def run(slo: Slo) -> Numbers:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(_arguments(load, slo)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise ValueError(f"vllm bench serve ended: see {log}")
        numbers: dict[str, float] = json.loads(line)
        if numbers["completed"] != load.requests:
            raise ValueError(f"vllm bench serve: {numbers['completed']} of {load.requests}")
        return numbers

    try:
        yield run
    finally:
        process.kill()
        process.wait()


def _arguments(load: Load, slo: Slo) -> list[str]:
    words = {
        "--backend": "openai",
        "--base-url": load.url,
        "--endpoint": "/v1/completions",
        "--model": load.model,
        "--tokenizer": str(load.tokenizer),
        "--dataset-name": "custom",
        "--dataset-path": str(load.prompts),
        "--custom-output-len": "-1",
        "--num-prompts": str(load.requests),
        "--max-concurrency": str(load.at_once),
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--metric-percentiles": "50,75,95",
    }
    flags = ["--skip-chat-template", "--ignore-eos", "--disable-tqdm"]
    goodput = ["--goodput", f"ttft:{slo.limits[TTFT]}", f"tpot:{slo.limits[ITL]}"]
    return [*(word for pair in words.items() for word in pair), *flags, *goodput]


def served_checkpoint(python: Path, folder: Path, environment: Mapping[str, str]) -> Candidate:
    """Return vllm-cpu on the checkpoint of a folder."""
    port = free_port()
    words = {
        "--model": str(folder / "checkpoint"),
        "--served-model-name": NAME,
        "--port": str(port),
        "--host": "127.0.0.1",
        "--max-model-len": "1024",
        "--max-num-seqs": "32",
    }
    module = (str(python), "-m", "vllm.entrypoints.openai.api_server")
    flags = ("--enforce-eager", "--no-enable-prefix-caching")
    argv = (*module, *(word for pair in words.items() for word in pair), *flags)
    return Candidate(name="vllm-cpu", argv=argv, port=port, folder=folder, environment=environment)


def _write_checkpoint(context: Context, folder: Path) -> None:
    program = (sys.executable, "-m", "tests.text_generation.tiny_llama")
    command = (*program, str(folder), str(LAYERS))
    subprocess.run(command, cwd=context.paths.code, check=True, stdout=subprocess.DEVNULL)

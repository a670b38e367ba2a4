"""`python -m benchmarks.h200_generation FOLDER OUT [STAGE …]`: a text generator on one GPU.

FOLDER keeps config.json and tokenizer of each shape between runs; OUT is a JSON file, written anew
after every stage, with logs beside it. A stage that fails is told there, and the next one runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.h200_generation.endpoint import Endpoint
from benchmarks.h200_generation.engines import (
    cache_report,
    engine_process,
    error_line,
    read_log,
    run_until_logged,
)
from benchmarks.h200_generation.load import overload_numbers, run_load, send_load
from benchmarks.h200_generation.load_tools import our_numbers, vllm_numbers
from benchmarks.h200_generation.machine import machine
from benchmarks.h200_generation.shapes import (
    BF16,
    CACHES,
    FP8,
    STORED,
    TINY,
    TOO_LARGE,
    Case,
    write_checkpoint,
)

INPUT, OUTPUT = 512, 128
BATCHES = {1: 5, 16: 3, 64: 3, 256: 3}
"""Repetitions of each batch."""
BASELINE = {1: 3, 16: 3, 64: 3}
PAIRED_SHARE, PAIRED_REQUESTS, PAIRED_SEQUENCES, ROUNDS = 0.45, 512, 256, 3
"""Two engines share the GPU: memory of each, requests of a measurement, requests at once."""
AT_ONCE, REQUESTS = 16, 128
KNEE, OVERLOAD_SECONDS = 64, 12.0
"""Requests that may be under way at once, and the seconds of a load."""
TOOL_ORDERS = (("vllm", "ours", "again"), ("again", "ours", "vllm"))
"""`again` is vLLM's tool too: how far two equal ones are apart."""
CACHE_SECONDS, STEP_TOKENS = 150, 8192
"""The second: a server's own max_num_batched_tokens on an H200; `LLM` has twice as many."""


@dataclass(kw_only=True)
class Experiment:
    """One run: where it writes, and what it found."""

    folder: Path
    out: Path
    tiny: bool
    document: dict[str, Any] = field(default_factory=dict)
    begin: float = field(default_factory=time.monotonic)
    seeds: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Each measurement has prompts of its own, which no prefix cache knows."""

    @property
    def bf16(self) -> Case:
        """The engine in BF16."""
        return TINY if self.tiny else BF16

    @property
    def fp8(self) -> Case:
        """The engine in FP8 with an FP8 cache."""
        return TINY if self.tiny else FP8

    @property
    def sizes(self) -> dict[str, int]:
        """Tokens of each prompt and answer."""
        return {"input": 64, "output": 16} if self.tiny else {"input": INPUT, "output": OUTPUT}

    def log(self, name: str) -> Path:
        """Return the file of a program's output."""
        folder = self.out.with_suffix("")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def options(self, case: Case, **changes: Any) -> dict[str, Any]:
        """Return vLLM's engine arguments of a case."""
        return {
            "model": str(write_checkpoint(case, self.folder)),
            **case.arguments(),
            **({"enforce_eager": True} if self.tiny else {}),
            **changes,
        }

    def run(self, name: str, stage: Callable[[], Any]) -> None:
        """Run one stage, and write the document."""
        begin = time.monotonic()
        try:
            self.document[name] = stage()
        except Exception as error:  # the next stage may run all the same
            self.document.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"[:600]
        seconds = self.document.setdefault("stage_seconds", {})
        seconds[name] = round(time.monotonic() - begin, 1)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.document, indent=1) + "\n", encoding="utf-8")
        failed = self.document.get("failed", {}).get(name, "")
        print(
            f"{name}: {seconds[name]} s, {time.monotonic() - self.begin:.0f} s in all {failed}",
            flush=True,
        )

    def rates(self, case: Case) -> dict[str, Any]:
        """Return output tokens a second of an engine, by the prompts that it answers at once."""
        log, rates = self.log(case.name), {}
        options = self.options(case, skip_tokenizer_init=True)
        with engine_process(options, log) as engine:
            ready = engine.read()["ready"]
            for batch in (1, 64):
                engine.ask(self._command(batch, act="generate", input=64, output=8))
            for batch, repetitions in self._batches(BATCHES).items():
                rates[str(batch)] = [
                    _rate(engine.ask(self._command(batch, act="generate", **self.sizes)))
                    for _ in range(repetitions)
                ]
        text = read_log(log)
        return {"ready_seconds": ready, **cache_report(text), "by_batch": rates}

    def baseline(self) -> dict[str, Any]:
        """Return what transformers' `generate` gives, as `roundhouse compare --baseline` reads it.

        Raises ValueError when it fails.
        """
        out, log = self.log("baseline").with_suffix(".json"), self.log("baseline")
        sizes, device = self.sizes, () if self.tiny else ("--gpu", "H200")
        batches = self._batches(BASELINE)
        command = (
            *(sys.executable, "-m", "benchmarks.generation_baseline", "--random", *device),
            *("--batches", ",".join(map(str, batches)), "--rounds", str(max(batches.values()))),
            *("--prompt", str(sizes["input"]), "--output", str(sizes["output"])),
            *(str(write_checkpoint(self.bf16, self.folder)), str(out)),
        )
        with log.open("wb") as output:
            subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        if not out.is_file():
            raise ValueError(f"benchmarks.generation_baseline: {error_line(read_log(log))}")
        document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        by_batch = {str(row["batch"]): row["rates"] for row in document["rows"]}
        return {"document": document, "by_batch": by_batch}

    def caches(self, cases: tuple[Case, ...]) -> dict[str, Any]:
        """Return what vLLM logged of the KV caches of engines that are started for that alone."""
        found: dict[str, Any] = {}
        for case in cases:
            begin = time.monotonic()
            options = self.options(
                case, skip_tokenizer_init=True, max_num_batched_tokens=STEP_TOKENS
            )
            text = run_until_logged(options, self.log(case.name), CACHE_SECONDS)
            report = cache_report(text)
            if "kv_tokens" not in report:
                report["refused"] = error_line(text)
            found[case.name] = {"seconds": round(time.monotonic() - begin, 1), **report}
            print(found, flush=True)
        return found

    def endpoint(self, case: Case) -> dict[str, Any]:
        """Return rounds of `vllm bench throughput` and of loads over HTTP on equal engines."""
        requests = 24 if self.tiny else PAIRED_REQUESTS
        limits = {"gpu_memory_utilization": PAIRED_SHARE, "max_num_seqs": PAIRED_SEQUENCES}
        options = self.options(case, **limits)
        endpoint = Endpoint(options=options, log=self.log(f"server-{case.name}"))
        log = self.log(f"throughput-{case.name}")

        def measure(name: str) -> Any:
            if name == "throughput":
                return _rate(engine.ask(self._command(requests, act="throughput", **self.sizes)))
            return run_load(endpoint.load(name, next(self.seeds), requests, requests, **self.sizes))

        with engine_process(options, log) as engine:
            engine.read()
            with endpoint.start() as found:
                names = ["throughput", *endpoint.ports()]
                for name in names:
                    measure(name)
                orders = [
                    random.Random(number).sample(names, len(names)) for number in range(ROUNDS)
                ]
                found["rounds"] = [{name: measure(name) for name in order} for order in orders]
                found["load_tools"] = self._load_tools(endpoint, checkpoint=str(options["model"]))
        return found

    def overload(self, case: Case) -> dict[str, Any]:
        """Return the load of as many clients as may be answered at once, and of three times those.

        Three rounds in random order; a client that is refused comes back after a pause.
        """
        knee, seconds = (2, 4.0) if self.tiny else (KNEE, OVERLOAD_SECONDS)
        # Without graphs the engine starts sooner; its first tokens come as soon.
        options = self.options(case, max_num_seqs=PAIRED_SEQUENCES, enforce_eager=True)
        endpoint = Endpoint(options=options, log=self.log(f"overload-{case.name}"), queue=knee)

        def measure(times: int, until: float) -> dict[str, Any]:
            clients = times * knee
            load = endpoint.load(
                "endpoint", next(self.seeds), 4 * clients, clients, until=until, **self.sizes
            )
            return overload_numbers(send_load(load))

        with endpoint.start() as found:
            measure(1, seconds / 4)
            orders = [random.Random(number).sample((1, 3), 2) for number in range(ROUNDS)]
            found["rounds"] = [
                {str(times): measure(times, seconds) for times in order} for order in orders
            ]
        return found

    def _load_tools(self, endpoint: Endpoint, checkpoint: str) -> list[dict[str, Any]]:
        """Return the numbers of two load tools on the same server, in both orders."""
        port = next(iter(endpoint.ports().values()))
        at_once, requests = (2, 8) if self.tiny else (AT_ONCE, REQUESTS)
        # 16 prompts of 512 tokens are just a step's 8,192: of one token more, the last would wait.
        sizes = {**self.sizes, "input": self.sizes["input"] - 32}
        load = {**sizes, "at_once": at_once, "requests": requests}

        def run_tool(name: str) -> dict[str, Any]:
            seed = next(self.seeds)
            own, log = {**load, "seed": seed}, self.log(f"{name}-{seed}")
            if name != "ours":
                return vllm_numbers(port, checkpoint, log, own)
            return our_numbers(port, own)

        rounds: list[dict[str, Any]] = []
        for names in TOOL_ORDERS:
            try:
                rounds.append({name: run_tool(name) for name in names})
            except (ValueError, OSError, subprocess.SubprocessError) as error:
                rounds.append({"failed": f"{type(error).__name__}: {error}"[:600]})
        return rounds

    def _command(self, batch: int, **more: Any) -> dict[str, Any]:
        return {"batch": batch, "seed": next(self.seeds), **more}

    def _batches(self, batches: dict[int, int]) -> dict[int, int]:
        return {1: 2, 4: 1} if self.tiny else batches

    def stages(self) -> dict[str, Callable[[], Any]]:
        """Return every stage, by its name."""
        stored = {} if self.tiny else STORED
        return {
            "rates-bf16": lambda: self.rates(self.bf16),
            "rates-fp8": lambda: self.rates(self.fp8),
            **{f"rates-{name}-stored": partial(self.rates, case) for name, case in stored.items()},
            "baseline": self.baseline,
            "caches": lambda: self.caches((TINY,) if self.tiny else CACHES),
            "endpoint-bf16": lambda: self.endpoint(self.bf16),
            "endpoint-fp8": lambda: self.endpoint(self.fp8),
            "overload": lambda: self.overload(self.bf16),
            "too-large": lambda: self.caches((TINY if self.tiny else TOO_LARGE,)),
        }


def _rate(answer: dict[str, Any]) -> float:
    return round(float(answer["tokens"] / answer["seconds"]), 2)


def main(arguments: list[str]) -> int:
    """Return 0 when every stage ran to its end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200_generation")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, help="a JSON file; stages are added to one that exists")
    parser.add_argument("stages", nargs="*", help="default: all")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, on a CPU")
    options = parser.parse_args(arguments)
    experiment = Experiment(
        folder=options.folder.resolve(), out=options.out.resolve(), tiny=options.tiny
    )
    stages = experiment.stages()
    unknown = sorted(set(options.stages) - set(stages))
    if unknown:
        parser.error(f"unknown stage {unknown[0]}; allowed: {', '.join(stages)}")
    if experiment.out.is_file():
        experiment.document = json.loads(experiment.out.read_text(encoding="utf-8"))
    experiment.document.update(machine())
    for name in options.stages or stages:
        experiment.run(name, stages[name])
    return 1 if experiment.document.get("failed") else 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(sys.argv[1:]))

"""vLLM without a server, in a fork of a process that has imported it.

`random_prompts` is for every program of the experiment, and needs the standard library alone.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.h200_generation.programs.answers import open_answers

SMALLEST_TOKEN = 1000
"""Random prompts have no special tokens and no single bytes."""


def random_prompts(vocabulary: int, count: int, length: int, seed: int) -> list[list[int]]:
    """Return prompts of random tokens, which share no beginning that a cache could keep."""
    numbers = random.Random(seed)
    first = min(SMALLEST_TOKEN, vocabulary // 2)
    return [[numbers.randrange(first, vocabulary) for _ in range(length)] for _ in range(count)]


class Engine:
    """vLLM's `LLM`, and what is measured of it; times in seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from vllm import LLM

        self.options = options
        self.llm = LLM(**options)
        self.vocabulary = int(self.llm.llm_engine.model_config.get_vocab_size())

    def generate(self, batch: int, input_tokens: int, output_tokens: int, seed: int) -> Any:
        """Answer so many prompts at once, greedily."""
        from vllm import SamplingParams

        prompts = random_prompts(self.vocabulary, batch, input_tokens, seed)
        parameters = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=output_tokens)
        begin = time.perf_counter()
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts], parameters, use_tqdm=False
        )
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "tokens": _tokens(outputs)}

    def throughput(self, requests: int, input_tokens: int, output_tokens: int, seed: int) -> Any:
        """Run `vllm bench throughput`'s own measurement on the engine that is up."""
        import vllm
        from vllm.benchmarks.datasets import SampleRequest
        from vllm.benchmarks.throughput import run_vllm
        from vllm.engine.arg_utils import EngineArgs

        samples = [
            SampleRequest(
                prompt={"prompt_token_ids": prompt},
                prompt_len=input_tokens,
                expected_output_len=output_tokens,
            )
            for prompt in random_prompts(self.vocabulary, requests, input_tokens, seed)
        ]
        original = vllm.LLM
        vllm.LLM = type("SameEngine", (), {"from_engine_args": lambda _: self.llm})
        try:
            seconds, outputs = run_vllm(samples, 1, EngineArgs(**self.options), do_profile=False)
        finally:
            vllm.LLM = original
        return {"seconds": seconds, "tokens": _tokens(outputs)}


def _tokens(outputs: Any) -> int:
    return sum(len(answer.token_ids) for output in outputs for answer in output.outputs)


def serve_engine(
    connection: Connection, other_end: Connection, options: Mapping[str, Any], log: str
) -> None:
    """Answer commands until the connection ends; vLLM's output goes to a file.

    The first answer is `{"ready": seconds}`, each other one `{"seconds", "tokens"}` of a command
    `{"act": "generate" or "throughput", "batch", "input", "output", "seed"}`.
    """
    os.setsid()
    other_end.close()
    open_answers(log)
    begin = time.perf_counter()
    engine = Engine(options)
    acts = {"generate": engine.generate, "throughput": engine.throughput}
    connection.send({"ready": round(time.perf_counter() - begin, 1)})
    while True:
        try:
            command = connection.recv()
        except EOFError:
            return
        sizes = (command["batch"], command["input"], command["output"], command["seed"])
        connection.send(acts[command["act"]](*sizes))


def start_engine(options: Mapping[str, Any], log: str) -> None:
    """Start an engine in this process, which is killed once it has logged its KV cache."""
    os.setsid()
    open_answers(log)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    LLM(**options)


def bench_serve(arguments: list[str], log: str) -> None:
    """Run `vllm bench serve`."""
    open_answers(log)
    import argparse

    from vllm.benchmarks.serve import add_cli_args, main

    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args(arguments))

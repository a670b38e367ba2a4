"""`python -m benchmarks.h200_generation.programs.engine OPTIONS LOG`: vLLM without a server.

OPTIONS: JSON of engine arguments. vLLM's output goes to LOG. Each line of standard input is a
command in JSON, and its answer a line of standard output:

- `{"act": "generate", "batch", "input", "output", "seed"}`: greedy answers to so many random
  prompts at once -> `{"seconds", "tokens"}`;
- `{"act": "throughput", "batch", "input", "output", "seed"}`: `vllm bench throughput`'s own
  measurement (its function `run_vllm`) with the engine that is up -> the same.

The first line, before any command, is `{"ready": seconds}`.
"""

from __future__ import annotations

import json
import random
import sys
import time
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
    """vLLM's `LLM`, and what is measured of it."""

    def __init__(self, options: dict[str, Any]) -> None:
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
        """Run `vllm bench throughput` on the engine that is up."""
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


def main(options: str, log: str) -> None:
    """Answer commands until standard input ends."""
    answers = open_answers(log)
    begin = time.perf_counter()
    engine = Engine(json.loads(options))
    acts = {"generate": engine.generate, "throughput": engine.throughput}
    print(json.dumps({"ready": time.perf_counter() - begin}), file=answers)
    for line in sys.stdin:
        command = json.loads(line)
        sizes = (command["batch"], command["input"], command["output"], command["seed"])
        result = acts[command["act"]](*sizes)
        print(json.dumps(result), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])

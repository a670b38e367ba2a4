"""Output tokens a second of a checkpoint and of its source, on this machine's GPU.

`python -m engine_build.text_generation.speed FOLDER …` runs vLLM over one of them, in a process of
its own, and prints a line of JSON. Where this Python has no vLLM, or the machine no GPU, nothing is
measured, and the planner's estimate stands.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from engine_build.log import Log
from engine_build.runner import Command, Runner
from onboarding.text_generation.checkpoint_lock import SpeedRecord
from onboarding.text_generation.spec import TextGenerationSpec

SECONDS = 3600.0
"""For one of the two runs, loading and compiling included."""
LEAST_TOKEN = 100
"""Token ids below it are special ones in many vocabularies."""


def measure_speed(
    spec: TextGenerationSpec, source: Path, checkpoint: Path, runner: Runner, log: Log
) -> SpeedRecord | None:
    """Return the speed of a checkpoint and of its source; None where it cannot be measured."""
    import torch

    if importlib.util.find_spec("vllm") is None or not torch.cuda.is_available():
        log.line("  not measured: this machine has no GPU with vLLM; the plan's estimate stands")
        return None
    speeds = [_tokens_per_second(spec, folder, runner) for folder in (source, checkpoint)]
    if speeds[1] is None:
        log.line("  not measured: vLLM does not run the checkpoint here; see the log")
        return None
    return SpeedRecord(
        output_tokens_per_second=speeds[1],
        # A source that does not fit this GPU gives none.
        reference_tokens_per_second=speeds[0] or 0.0,
        concurrency=spec.slo.concurrency,
        instance_type_or_machine=torch.cuda.get_device_name(0),
    )


def _tokens_per_second(spec: TextGenerationSpec, folder: Path, runner: Runner) -> float | None:
    context = spec.context
    lengths = (context.max_model_len, context.mean_prompt, context.mean_output)
    words = (*map(str, lengths), str(spec.slo.concurrency))
    argv = (sys.executable, "-m", "engine_build.text_generation.speed", str(folder), *words)
    ended = runner.run(Command(argv=argv, timeout_seconds=SECONDS))
    speed = ended.report.get("output_tokens_per_second")
    return float(speed) if ended.code == 0 and isinstance(speed, int | float) else None


def main(arguments: Sequence[str]) -> int:
    """Generate twice for each of so many requests at once, and print the tokens a second."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder")
    for name in ("max_model_len", "prompt_tokens", "output_tokens", "concurrency"):
        parser.add_argument(name, type=int)
    options = parser.parse_args(arguments)
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=options.folder,
        max_model_len=options.max_model_len,
        max_num_seqs=options.concurrency,
        enable_prefix_caching=False,
    )
    vocabulary = engine.get_tokenizer().vocab_size
    drawn = random.Random(0)
    prompts = [
        {"prompt_token_ids": drawn.choices(range(LEAST_TOKEN, vocabulary), k=options.prompt_tokens)}
        for _ in range(2 * options.concurrency)
    ]
    sampling = SamplingParams(temperature=0.0, max_tokens=options.output_tokens, ignore_eos=True)
    engine.generate(prompts[: options.concurrency], sampling, use_tqdm=False)
    begin = time.monotonic()
    answers = engine.generate(prompts, sampling, use_tqdm=False)
    seconds = time.monotonic() - begin
    tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
    print(json.dumps({"output_tokens_per_second": tokens / seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

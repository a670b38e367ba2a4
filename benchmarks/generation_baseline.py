"""The present way to generate text, measured: `transformers`' generate on a checkpoint.

`python -m benchmarks.generation_baseline CHECKPOINT OUT.json --batches 1,16,64` writes the file
that `roundhouse compare NAME --baseline OUT.json` reads. It needs torch and transformers alone.
Output tokens a second count the whole call, its prompts included; batches are measured in rounds of
random order, after one call of each that is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Generate = Callable[[int], float]
"""Generates for a batch, and returns the seconds it took."""


def measure(
    generate: Generate, batches: Sequence[int], rounds: int, output_tokens: int, seed: int = 1
) -> list[dict[str, Any]]:
    """Return the rows of a baseline: output tokens a second of each batch."""
    chance = random.Random(seed)
    rates: dict[int, list[float]] = {batch: [] for batch in batches}
    for batch in batches:
        generate(batch)
    for _ in range(rounds):
        for batch in chance.sample(list(batches), len(batches)):
            rates[batch].append(batch * output_tokens / generate(batch))
    return [
        {
            "batch": batch,
            "output_tokens_per_second": statistics.median(found),
            "lowest": min(found),
            "highest": max(found),
            "rates": [round(rate, 2) for rate in found],
            "rounds": rounds,
        }
        for batch, found in rates.items()
    ]


def load(checkpoint: Path, dtype: str, device: str, *, is_random: bool) -> Any:
    """Return a model with a checkpoint's weights, or with random ones of its config.json."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    form = getattr(torch, dtype)
    if not is_random:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=form)
        return model.to(device).eval()
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint), dtype=form)
    # Answers have a given length: no token ends them.
    model.generation_config.eos_token_id = None
    return model.eval()


def generator(model: Any, prompt_tokens: int, output_tokens: int) -> Any:
    """Return what generates with a model for a batch, and returns the seconds that it took."""
    import torch

    device = model.device.type
    words = model.config.vocab_size
    torch.manual_seed(1)

    def generate(batch: int) -> float:
        prompts = torch.randint(words, (batch, prompt_tokens), device=device)
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.inference_mode():
            answer = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=output_tokens,
                min_new_tokens=output_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        if answer.shape != (batch, prompt_tokens + output_tokens):
            raise SystemExit(f"generate gave {tuple(answer.shape)} tokens, not what was asked")
        return seconds

    return generate


def main(arguments: Sequence[str]) -> int:
    """Measure a checkpoint and write the file."""
    import torch
    import transformers

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generation_baseline", description=__doc__
    )
    parser.add_argument("checkpoint", type=Path, help="a folder with config.json and weights")
    parser.add_argument("out", type=Path, help="the JSON file")
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--gpu", help="its name in instance_types.yaml, such as A10G; none: a CPU")
    parser.add_argument("--random", action="store_true", help="random weights: config.json alone")
    given = parser.parse_args(arguments)
    if torch.cuda.is_available() != (given.gpu is not None):
        parser.error("--gpu: name the GPU of this machine, and none on a CPU")
    batches = [int(word) for word in given.batches.split(",")]
    device = "cuda" if given.gpu else "cpu"
    model = load(given.checkpoint, given.dtype, device, is_random=given.random)
    generate = generator(model, given.prompt, given.output)
    hardware = torch.cuda.get_device_name(0) if given.gpu else f"{torch.get_num_threads()} threads"
    command = ["python", "-m", "benchmarks.generation_baseline", *arguments]
    document = {
        "version": 1,
        "tool": f"transformers {transformers.__version__} generate, torch {torch.__version__}",
        "model": given.checkpoint.name,
        "dtype": given.dtype,
        "hardware": hardware,
        "gpu": given.gpu,
        "gpus": 1 if given.gpu else 0,
        "prompt_tokens": given.prompt,
        "output_tokens": given.output,
        "rows": measure(generate, batches, given.rounds, given.output),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": shlex.join(command),
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m benchmarks.h200_generation.programs.transformers_generate CHECKPOINT DEVICE LOG`.

The baseline: `generate` of transformers, greedy, random weights in BF16, with its defaults. Lines
of standard input `{"batch", "input", "output", "seed"}`, lines of standard output
`{"seconds", "tokens"}`; the first is `{"ready": seconds}`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.h200_generation.programs.answers import open_answers
from benchmarks.h200_generation.programs.engine import random_prompts


def load(checkpoint: str, device: str) -> Any:
    """Return the model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(checkpoint)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.eval()
    generation = model.generation_config
    generation.eos_token_id, generation.pad_token_id = None, 0
    return model


def generate(model: Any, batch: int, input_tokens: int, output_tokens: int, seed: int) -> Any:
    """Answer so many prompts at once; seconds until the last token is there."""
    import torch

    rows = random_prompts(model.config.vocab_size, batch, input_tokens, seed)
    prompts = torch.tensor(rows, device=model.device)
    begin = time.perf_counter()
    with torch.inference_mode():
        answers = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=False,
            min_new_tokens=output_tokens,
            max_new_tokens=output_tokens,
        )
    tokens = int(answers[:, input_tokens:].cpu().numel())
    return {"seconds": time.perf_counter() - begin, "tokens": tokens}


def main(checkpoint: str, device: str, log: str) -> None:
    """Answer commands until standard input ends."""
    answers = open_answers(log)
    begin = time.perf_counter()
    model = load(checkpoint, device)
    generate(model, 1, 16, 4, 0)
    print(json.dumps({"ready": time.perf_counter() - begin}), file=answers)
    for line in sys.stdin:
        command = json.loads(line)
        sizes = (command["batch"], command["input"], command["output"], command["seed"])
        print(json.dumps(generate(model, *sizes)), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])

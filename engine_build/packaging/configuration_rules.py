"""What Triton's protobuf accepts in a model configuration and its servers do not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from engine_build.errors import InputRefused
from engine_build.packaging.served import Served
from onboarding.manifest import TensorRecord

DATATYPES = (
    "BOOL",
    *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("FP16", "FP32", "FP64"),
)
"""KServe v2 datatypes of tensors that both servers take.

BF16 has no array type in Python, and BYTES is text.
"""


def check_served(served: Served, *, is_cpu: bool) -> None:
    """Raises InputRefused with the first fault."""
    for rule in (batch_faults, profile_faults, tensor_faults, name_faults, cache_faults):
        for fault in rule(served):
            raise InputRefused(f"model configuration of {served.model}: {fault}.")
    answer = served.outputs[0]
    # On a GPU nothing stands behind the plan that could cast an answer.
    if served.encoder is not None and not is_cpu and answer.datatype != "FP32":
        raise InputRefused(
            f"model configuration of {served.model}: output {answer.name!r} has datatype "
            f"{answer.datatype}; task {served.task} answers in FP32: end the network with a cast."
        )


def batch_faults(served: Served) -> Iterator[str]:
    """Sizes of batches and counts of instances."""
    largest, serving = served.max_batch_size, served.serving
    if largest < 1:
        yield f"max_batch_size is {largest}; it must be 1 or more"
    for size in serving.dynamic_batching.preferred_batch_sizes:
        if not 1 <= size <= largest:
            yield (
                f"preferred batch size {size} is not from 1 to max_batch_size {largest}; change "
                "preferred_batch_sizes"
            )
    delay, instances = serving.dynamic_batching.max_queue_delay_us, serving.instances_per_gpu
    if delay < 0:
        yield f"max_queue_delay_us is {delay}; it must be 0 or more"
    if instances < 1:
        yield f"instances_per_gpu is {instances}; it must be 1 or more"


def cache_faults(served: Served) -> Iterator[str]:
    """Triton's cache knows a request by its inputs; a prompt's name is a parameter."""
    if served.serving.response_cache and served.prompts is not None and served.prompts.differ:
        yield (
            f"the model has prompts ({', '.join(served.prompts.texts)}), and response_cache would "
            "answer a text from memory whatever prompt its request names; set "
            "`serving.response_cache` to false"
        )


def profile_faults(served: Served) -> Iterator[str]:
    """Optimization profiles, which also size graphs and warm-ups."""
    if not served.profiles:
        yield "it has no optimization profile; give at least one"
        return
    for index, profile in enumerate(served.profiles):
        for axis, sizes in (("batch", profile.batch), ("sequence", profile.sequence)):
            if sizes is not None and not all(low <= high for low, high in pairwise((1, *sizes))):
                yield (
                    f"optimization profile {index} has {axis} {list(sizes)}; it must be 1 <= min "
                    "<= opt <= max"
                )
    most = max(profile.batch[2] for profile in served.profiles)
    if served.max_batch_size > most:
        yield (
            f"max_batch_size is {served.max_batch_size}, but no optimization profile takes more "
            f"than {most} rows"
        )


def tensor_faults(served: Served) -> Iterator[str]:
    """Inputs and outputs of the network."""
    for kind, records in (("input", served.inputs), ("output", served.outputs)):
        if not records:
            yield f"the network has no {kind}"
        for record in records:
            yield from _record_faults(kind, record)


def name_faults(served: Served) -> Iterator[str]:
    """Names that would fall together, or that no folder can have."""
    if not served.model or "_" in served.model or "/" in served.model:
        yield (
            f"the name {served.model!r} must have no underscore or slash: members of an ensemble "
            "are told by theirs"
        )
    for kind, records in (("inputs", served.inputs), ("outputs", served.outputs)):
        names = [record.name for record in records]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"two {kind} have the name {name!r}; rename one in the network"


def _record_faults(kind: str, record: TensorRecord) -> Iterator[str]:
    if not record.name:
        yield f"an {kind} of the network has no name"
    subject = f"{kind} {record.name!r}"
    if record.datatype not in DATATYPES:
        yield f"{subject} has datatype {record.datatype}; allowed: {', '.join(DATATYPES)}"
    shape = f"{subject} has shape {list(record.shape)}"
    if not record.shape or record.shape[0] != -1:
        yield f"{shape}; its first axis must be the batch, dynamic (-1)"
    if any(size == 0 or size < -1 for size in record.shape):
        yield f"{shape}; each axis must be positive, or -1 for any size"

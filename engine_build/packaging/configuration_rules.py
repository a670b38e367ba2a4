"""What Triton's protobuf accepts in a model configuration and its servers do not.

One function a rule, one sentence a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from engine_build.errors import InputRefused
from engine_build.packaging.served import Served
from onboarding.manifest import ProfileRecord, TensorRecord

DATATYPES = (
    "BOOL",
    *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    "FP16",
    "FP32",
    "FP64",
)
"""KServe v2 datatypes of tensors that both servers take.

BF16 has no array type in Python, and BYTES is text.
"""


def check_served(served: Served, *, is_cpu: bool) -> None:
    """Raises InputRefused with the first fault."""
    faults = (
        *batch_faults(served),
        *profile_faults(served),
        *tensor_faults(served),
        *name_faults(served),
    )
    for fault in faults if is_cpu else (*faults, *answer_faults(served)):
        raise InputRefused(f"model configuration of {served.model}: {fault}.")


def batch_faults(served: Served) -> Iterator[str]:
    """Sizes of batches and counts of instances."""
    largest, batching = served.max_batch_size, served.serving.dynamic_batching
    if largest < 1:
        yield f"max_batch_size is {largest}; it must be 1 or more"
    for size in batching.preferred_batch_sizes:
        if not 1 <= size <= largest:
            yield (
                f"preferred batch size {size} is not from 1 to max_batch_size {largest}; change "
                "preferred_batch_sizes"
            )
    if batching.max_queue_delay_us < 0:
        yield f"max_queue_delay_us is {batching.max_queue_delay_us}; it must be 0 or more"
    if served.serving.instances_per_gpu < 1:
        yield f"instances_per_gpu is {served.serving.instances_per_gpu}; it must be 1 or more"


def profile_faults(served: Served) -> Iterator[str]:
    """Optimization profiles, which also size graphs and warm-ups."""
    if not served.profiles:
        yield "it has no optimization profile; give at least one"
        return
    for index, profile in enumerate(served.profiles):
        yield from _axis_faults(index, profile)
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
        if twice := _twice(names):
            yield f"two {kind} have the name {twice!r}; rename one in the network"


def answer_faults(served: Served) -> Iterator[str]:
    """A text task's answer on a GPU, where nothing stands behind the plan that could cast it."""
    if served.is_text and served.outputs[0].datatype != "FP32":
        answer = served.outputs[0]
        yield (
            f"output {answer.name!r} has datatype {answer.datatype}; a text task answers in FP32: "
            "end the network with a cast"
        )


def _axis_faults(index: int, profile: ProfileRecord) -> Iterator[str]:
    for axis, sizes in (("batch", profile.batch), ("sequence", profile.sequence)):
        if sizes is not None and (sizes[0] < 1 or any(low > high for low, high in pairwise(sizes))):
            yield (
                f"optimization profile {index} has {axis} {list(sizes)}; "
                "it must be 1 <= min <= opt <= max"
            )


def _record_faults(kind: str, record: TensorRecord) -> Iterator[str]:
    if not record.name:
        yield f"an {kind} of the network has no name"
    if record.datatype not in DATATYPES:
        allowed = ", ".join(DATATYPES)
        yield f"{kind} {record.name!r} has datatype {record.datatype}; allowed: {allowed}"
    if not record.shape or record.shape[0] != -1:
        yield (
            f"{kind} {record.name!r} has shape {list(record.shape)}; its first axis must be the "
            "batch, dynamic (-1)"
        )
    if any(size == 0 or size < -1 for size in record.shape):
        yield (
            f"{kind} {record.name!r} has shape {list(record.shape)}; each axis must be positive, "
            "or -1 for any size"
        )


def _twice(names: Sequence[str]) -> str | None:
    return next((name for index, name in enumerate(names) if name in names[:index]), None)

"""What archives must share before one may carry them all.

One function a rule, one sentence a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine_build.errors import InputRefused
from engine_build.packaging.engine_archive import EngineArchive

SHARED = {
    "model": "the model",
    "platform": "the serving platform",
    "runtime": "the TensorRT build",
    "task": "the task",
    "network_keys": "the network",
    "inputs": "the inputs",
    "outputs": "the outputs",
    "labels": "the class names",
    "optimization_profiles": "the optimization profiles",
    "max_batch_size": "the largest batch",
    "warm_up": "the warm-up",
    "auto_truncate": "whether long texts are cut",
    "tokenizer_file": "the tokenizer's place",
}
"""Fields of manifests that must agree, in the order in which a difference is told.

Precision may differ: `auto` decides a GPU.
"""
MEANINGS = (
    ("tokenizer.json", "another tokenizer"),
    ("config.pbtxt", "other dynamic batching, instances, graphs or warm-ups"),
    (".py", "code of another version of roundhouse"),
)


def check_combinable(archives: Sequence[EngineArchive]) -> None:
    """Raises InputRefused with the first fault."""
    for fault in (
        *count_faults(archives),
        *capability_faults(archives),
        *shared_faults(archives),
        *file_faults(archives),
    ):
        raise InputRefused(f"{fault}.")


def count_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    """One archive needs no combining."""
    if len(archives) < 2:
        yield (
            f"{len(archives)} archive is given; "
            "give two or more, each for another compute capability"
        )


def capability_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    """Each archive is for a GPU of its own kind."""
    for index, archive in enumerate(archives):
        capability = archive.manifest.compute_capability
        if archive.manifest.runtime.name != "tensorrt":
            yield (
                f"{archive.name} holds a CPU engine, which Triton does not choose by compute "
                "capability; give TensorRT engines"
            )
        for other in archives[:index]:
            if other.manifest.compute_capability == capability:
                yield (
                    f"{other.name} and {archive.name} are both for compute capability "
                    f"{capability}; give one of them"
                )


def shared_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    """Clients must see one model, whatever GPU answers."""
    for other in archives[1:]:
        for field, meaning in SHARED.items():
            first, second = getattr(archives[0].manifest, field), getattr(other.manifest, field)
            if first != second:
                values = f"{_short(first)} and {_short(second)}"
                yield (
                    f"{archives[0].name} and {other.name} disagree on {meaning}: {values}; build "
                    "both from one spec"
                )


def file_faults(archives: Sequence[EngineArchive]) -> Iterator[str]:
    """All files but the engines are the same bytes."""
    for other in archives[1:]:
        first, second = _besides_engine(archives[0]), _besides_engine(other)
        for name in sorted(set(first) | set(second)):
            if first.get(name) != second.get(name):
                meaning = next(
                    (text for end, text in MEANINGS if name.endswith(end)), "another file"
                )
                yield (
                    f"{name} differs between {archives[0].name} and {other.name}: {meaning}; build "
                    "both from one spec"
                )


def _besides_engine(archive: EngineArchive) -> dict[str, str]:
    return {
        name: digest
        for name, digest in archive.manifest.files.items()
        if name != archive.manifest.engine_file
    }


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

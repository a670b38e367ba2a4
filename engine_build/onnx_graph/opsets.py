"""Versions of ONNX's operators that TensorRT's parser documents; it reads others too, and then
means whatever it likes.

Sources: onnx-tensorrt docs/operators.md of releases 10.0-GA ("opset 9 to opset 20") and 10.15
("opset 9 to opset 24");
TensorRT 11's ONNX Opset Guide (minimum 9, maximum 25). A release between two rows has the older
one's range.
"""

from __future__ import annotations

from engine_build.errors import NetworkRefused
from onboarding.platform import ServingPlatform

RANGES: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((10, 0), (9, 20)),
    ((10, 15), (9, 24)),
    ((11, 0), (9, 25)),
)
"""(TensorRT release, (least opset, largest opset)), the oldest release first."""
LEAST_INT8 = 13
"""QuantizeLinear and DequantizeLinear have had an axis since."""


def opset_range(tensorrt: str) -> tuple[int, int] | None:
    """The opsets of an exact TensorRT build, such as "10.16.1.11"; None for releases older than the
    table.
    """
    major, minor = (*map(int, tensorrt.split(".")[:2]), 0)[:2]
    return next(
        (allowed for release, allowed in reversed(RANGES) if release <= (major, minor)), None
    )


def refuse_opset(opset: int, platform: ServingPlatform, *, may_be_int8: bool = False) -> None:
    """Refuses a network that the platform's TensorRT would read at its own risk, or that takes no
    INT8. Raises NetworkRefused.
    """
    allowed = None if platform.tensorrt is None else opset_range(platform.tensorrt)
    if allowed is not None and not allowed[0] <= opset <= allowed[1]:
        raise NetworkRefused(
            f"the network has opset {opset}, and TensorRT {platform.tensorrt} of platform "
            f"{platform.name} reads {allowed[0]} to {allowed[1]}; export it with opset 17, or "
            "convert it with onnx.version_converter.convert_version(model, 17)."
        )
    if may_be_int8 and opset < LEAST_INT8:
        raise NetworkRefused(
            f"the network has opset {opset}, and INT8 needs {LEAST_INT8} or newer; export it with "
            "opset 17, or ask for precision fp16 or fp32."
        )

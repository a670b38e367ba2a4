"""The compile check's own process: `python -m engine_build.rtx NETWORK PROFILES` prints one JSON line.

PROFILES is a JSON list of {"batch": [min, opt, max], "sequence": [min, opt, max] or null}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

Profiles = list[dict[str, list[int] | None]]


def main(arguments: list[str]) -> int:
    """0: the line tells the verdict; 3: TensorRT-RTX is not installed."""
    try:
        import tensorrt_rtx as trt
    except ImportError:
        return 3
    begin = time.monotonic()
    reason = refusal(trt, Path(arguments[0]), json.loads(arguments[1]))
    seconds = round(time.monotonic() - begin, 2)
    verdict = "pass" if reason is None else "fail"
    print(json.dumps({"version": str(trt.__version__), "verdict": verdict, "seconds": seconds, "reason": reason}))
    return 0


def refusal(trt: Any, path: Path, profiles: Profiles) -> str | None:
    """Why the network does not compile, in the parser's or builder's own words; None when it does."""
    logger = _logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        return "; ".join(_told(parser.get_error(index)) for index in range(parser.num_errors)) or "it does not parse"
    config = builder.create_builder_config()
    for profile in profiles:
        config.add_optimization_profile(_profile(builder, network, profile))
    plan = builder.build_serialized_network(network, config)
    return None if plan is not None else "; ".join(logger.errors) or "it does not compile, and the builder says no more"


def _logger(trt: Any) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        """Keeps the builder's errors."""

        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT."""
            if severity <= trt.ILogger.Severity.ERROR:
                self.errors.append(" ".join(message.split()))

    return Logger()


def _told(error: Any) -> str:
    node = error.node_name() or f"number {error.node()}"
    return f"node {node} (operator {error.node_operator()}): {' '.join(error.desc().split())}"


def _profile(builder: Any, network: Any, profile: dict[str, list[int] | None]) -> Any:
    result = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = [_size(tuple(tensor.shape), profile, place) for place in range(3)]
        result.set_shape(tensor.name, *sizes)
    return result


def _size(shape: tuple[int, ...], profile: dict[str, list[int] | None], place: int) -> tuple[int, ...]:
    """The batch is axis 0 and the sequence axis 1; axes that are fixed stay as they are."""
    sizes = list(shape)
    for axis, wanted in enumerate((profile.get("batch"), profile.get("sequence"))):
        if axis < len(sizes) and sizes[axis] < 0 and wanted is not None:
            sizes[axis] = wanted[place]
    return tuple(sizes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

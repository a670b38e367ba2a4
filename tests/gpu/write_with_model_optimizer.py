"""Writes a network by NVIDIA's Model Optimizer, in an environment of its own.

`PYTHON write_with_model_optimizer.py SOURCE SAMPLES PRECISION TARGET [OPERATOR …]` with the Python
of `uv venv FOLDER && uv pip install --python FOLDER "nvidia-modelopt[onnx]==0.47.0"`. Prints the
seconds without imports. It rewrites its source, so give it a copy.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision
from modelopt.onnx.quantization import quantize

BATCH = 8


def write(source: Path, samples: Path, precision: str, target: Path, operators: list[str]) -> None:
    """Write fp16 by autocast, int8 and fp8 by ONNX PTQ with maxima, as ours calibrates.

    `operators` are quantized; without any, Model Optimizer's default.
    """
    with np.load(samples) as arrays:
        feeds = dict(arrays)
    if precision == "fp16":
        # Its reference run takes every tensor of one batch.
        first = target.with_suffix(".npz")
        np.savez(first, **{name: values[:BATCH] for name, values in feeds.items()})
        model = convert_to_mixed_precision(
            str(source), keep_io_types=True, calibration_data=str(first)
        )
        onnx.save(model, target)
        return
    sizes = {name: "x".join(map(str, (BATCH, *feed.shape[1:]))) for name, feed in feeds.items()}
    quantize(
        str(source),
        quantize_mode=precision,
        calibration_data=feeds,
        calibration_method="max",
        calibration_eps=["cpu"],
        calibration_shapes=",".join(f"{name}:{shape}" for name, shape in sizes.items()),
        op_types_to_quantize=operators or None,
        high_precision_dtype="fp16",
        output_path=str(target),
    )


if __name__ == "__main__":
    begin = time.perf_counter()
    write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5:])
    print(time.perf_counter() - begin)

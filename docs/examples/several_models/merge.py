"""Merge two networks into one: `python merge.py FIRST.onnx SECOND.onnx MERGED.onnx OUTPUT INPUT`.

OUTPUT of the first network becomes INPUT of the second; needs `pip install onnx`.
"""

import sys

import onnx
from onnx import compose, version_converter


def merge(
    first: onnx.ModelProto, second: onnx.ModelProto, output: str, taken: str
) -> onnx.ModelProto:
    """Return one network that answers what the second answers to the first's output."""
    opset = max(operators(first), operators(second))
    first, second = (
        model if operators(model) == opset else version_converter.convert_version(model, opset)
        for model in (first, second)
    )
    first.ir_version = second.ir_version = max(first.ir_version, second.ir_version)
    # Names inside of the two may be the same; clients and `check` know those of inputs and outputs.
    second = compose.add_prefix(second, "second/", rename_inputs=False, rename_outputs=False)
    merged = compose.merge_models(first, second, io_map=[(output, taken)])
    onnx.checker.check_model(merged, full_check=True)
    return merged


def operators(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators."""
    return next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))


if __name__ == "__main__":
    first, second, merged, output, taken = sys.argv[1:]
    onnx.save(merge(onnx.load(first), onnx.load(second), output, taken), merged)

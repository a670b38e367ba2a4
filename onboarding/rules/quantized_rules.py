"""Rules of sources that hold Q/DQ nodes, and of the float network they are judged against."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.dataset import is_inside
from onboarding.fault import Fault
from onboarding.onnx_header import OnnxHeader
from onboarding.rules.rule import ModelCase, rule, rules_of

FLOAT = ("fp32", "fp16", "bf16")


@rule("engine", "source")
def quantized_source_is_kept(case: ModelCase) -> Iterator[Fault]:
    """A network that holds Q/DQ nodes is never quantized twice, and is no float network."""
    header, engine = case.onnx_header, case.spec.engine
    if not isinstance(header, OnnxHeader) or not header.is_quantized:
        return
    holds = "and 'source.onnx' holds QuantizeLinear and DequantizeLinear nodes already"
    if engine.precision in FLOAT:
        yield case.document.at("engine", "precision").fault(
            f"'engine.precision' is {engine.precision}, {holds}",
            value=engine.precision,
            allowed="auto, or int8 or fp8 as the nodes are",
            way_out="choose auto, or name the float network",
        )
    for key in ("calibration", "sensitivity_search"):
        if getattr(engine, key) is not None:
            yield case.document.at("engine", key).fault(
                f"'engine.{key}' is for float networks, {holds}",
                way_out=f"take {key} out, or name the float network",
            )
            return
    if engine.quantization == "calibration-cache":
        yield case.document.at("engine", "quantization").fault(
            f"'engine.quantization' is calibration-cache, {holds}",
            value=engine.quantization,
            allowed="explicit",
            way_out="choose explicit, or name the float network",
        )


@rule("accuracy", "source")
def reference_is_of_an_onnx_source(case: ModelCase) -> Iterator[Fault]:
    """A checkpoint is its own reference; a file of the tree shows its change in a pull request."""
    reference, root = case.spec.accuracy.reference, case.datasets.root
    if reference is None:
        return
    place, onnx = case.document.at("accuracy", "reference"), reference.onnx
    if case.spec.source.onnx is None:
        yield place.fault(
            "'accuracy.reference' is for source.onnx: a checkpoint is compared with itself",
            way_out="take reference out",
        )
    elif re.fullmatch(r"s3://[^/]+/.+", onnx):
        return
    elif "://" in onnx or not is_inside(root, onnx):
        yield place.fault(
            "'accuracy.reference.onnx' is neither in S3 nor under the onboarding root",
            value=onnx,
            allowed="s3://BUCKET/KEY, or a path relative to the onboarding root",
            way_out="copy the file to one of these",
        )
    elif not (root / onnx).is_file():
        yield place.fault(
            "'accuracy.reference.onnx' is no file under the onboarding root",
            value=onnx,
            way_out="add the file, or correct the path",
        )


RULES = rules_of(globals())

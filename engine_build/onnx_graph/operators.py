"""What people do about an operator that a compiler refuses: a table of operators, and one of the
compiler's own words.

Operators: the rows marked N of onnx-tensorrt's docs/operators.md (TensorRT 10.15), and those whose
output has a size that only
the values decide. Words: as TensorRT-RTX 1.7 says them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PLUGIN = (
    "or replace it in the ONNX file by standard ones (onnx-graphsurgeon); plugins are not loaded"
)
ONNX_DOMAINS = ("", "ai.onnx")
TENSORRT_ONLY = frozenset(("NonZero", "NonMaxSuppression", "RoiAlign", "DeformConv"))
"""Operators that TensorRT supports (onnx-tensorrt's docs/operators.md) and TensorRT-RTX lacks."""
RUNTIME_DOMAIN = "com.microsoft"
"""Operators that ONNX Runtime adds; TensorRT knows some of them by name."""

_GROUPS: tuple[tuple[str, str], ...] = (
    (
        "NonZero Unique Compress",
        "the size of its output is known only once it has run: keep the fixed size and use a mask "
        "(Where, Mul) instead",
    ),
    (
        "StringNormalizer StringConcat StringSplit RegexFullMatch TfIdfVectorizer LabelEncoder "
        "Tokenizer",
        "no string enters an engine: cut these nodes off, and give the network numbers",
    ),
    (
        "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "SequenceMap SplitToSequence ConcatFromSequence Optional OptionalGetElement "
        "OptionalHasElement",
        "no list of tensors enters an engine: write Python lists as one tensor (stack, split with "
        "fixed sizes), and export again",
    ),
    (
        "DynamicQuantizeLinear MatMulInteger ConvInteger QLinearConv QLinearMatMul QLinearAdd "
        "QAttention DynamicQuantizeMatMul",
        "the network is quantized already, for another runtime: name the float network, this "
        "build quantizes it itself",
    ),
    (
        "Bernoulli Multinomial",
        "draw random numbers outside and give them to the network as an input",
    ),
    (
        "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "it belongs to training: export in evaluation mode, without the loss",
    ),
    (
        "DFT MelWeightMatrix",
        "compute the signal's features before the network, or as a MatMul with a constant matrix",
    ),
    (
        "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
        "write it with integer Mul, Div and Mod",
    ),
    (
        "Loop Scan If",
        "replace the loop or branch by a fixed number of steps before exporting: control flow "
        "must not change any shape",
    ),
    (
        "Resize Upsample",
        "use nearest or linear without antialiasing, with fixed scales, and opset 13 or newer",
    ),
)
_BY_OPERATOR = {operator: advice for operators, advice in _GROUPS for operator in operators.split()}

_BY_WORDS: tuple[tuple[str, str], ...] = (
    (r"uint8", "cast it to FP32 before this node: TensorRT reads UINT8 at inputs and outputs only"),
    (
        r"convertDtype|Unsupported ONNX data type|data ?type",
        "cast to FP32, FP16, INT64, INT32 or BOOL before it",
    ),
    (
        r"requires inputs with type|validateTypes",
        "cast its inputs to FP32, FP16, INT64 or INT32 before it",
    ),
    (r"zero point", "quantize symmetrically: every zero point 0"),
    (
        r"was not registered",
        "it reads a tensor that the graph does not give it: export again, and run onnx.checker on "
        "the file",
    ),
    (
        r"must be an initializer|is_weights|build-time constant",
        "it needs a constant there: fold constants (onnxsim, or polygraphy surgeon sanitize "
        "--fold-constants)",
    ),
    (
        r"dynamic|profile|dimension|shape",
        "a size is fixed in the graph, or follows from values: export with dynamic axes, without "
        ".item() and Python sizes, or narrow the optimization profiles",
    ),
    (
        r"memory|OutOfMemory",
        "give the compiler more memory, or lower the largest batch and sequence of the profiles",
    ),
)


def advice(operator: str, said: str, domain: str = "") -> str:
    """What people do about a refused node, from its operator and from what the compiler says."""
    if domain not in (*ONNX_DOMAINS, RUNTIME_DOMAIN):
        return f"operator domain {domain!r} is not ONNX's: export with standard operators, {PLUGIN}"
    known = _BY_OPERATOR.get(operator)
    if known is not None:
        return known
    by_words = _by_words(said)
    if by_words is not None:
        return by_words
    return f"write it with other operators (another opset of the exporter may), {PLUGIN}"


def _by_words(said: str) -> str | None:
    return next(
        (found for pattern, found in _BY_WORDS if re.search(pattern, said, re.IGNORECASE)), None
    )


def foreign_domains(domains: Iterable[str], own: Iterable[str]) -> set[str]:
    """Domains that are neither ONNX's, nor ONNX Runtime's, nor of the model's own functions."""
    return set(domains) - {*ONNX_DOMAINS, RUNTIME_DOMAIN, *own}

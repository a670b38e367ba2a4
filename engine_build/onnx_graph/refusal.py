"""Why a compiler refuses a network, in one sentence: node, operator, origin, and the way out.

Operators: the rows marked N of onnx-tensorrt's docs/operators.md (TensorRT 10.15), and those whose
output has a size that only the values decide. Messages: as TensorRT-RTX 1.7 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from engine_build.errors import NetworkRefused

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

_BY_MESSAGE: tuple[tuple[str, str], ...] = (
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
    (r"uint8", "cast it to FP32 before this node: TensorRT reads UINT8 at inputs and outputs only"),
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


def advice(operator: str, message: str, domain: str = "") -> str:
    """What people do about a refused node, from its operator and from what the compiler says."""
    if domain not in (*ONNX_DOMAINS, RUNTIME_DOMAIN):
        return f"operator domain {domain!r} is not ONNX's: export with standard operators, {PLUGIN}"
    known = _BY_OPERATOR.get(operator)
    if known is not None:
        return known
    by_words = _by_message(message)
    if by_words is not None:
        return by_words
    return f"write it with other operators (another opset of the exporter may), {PLUGIN}"


def _by_message(message: str) -> str | None:
    return next(
        (found for pattern, found in _BY_MESSAGE if re.search(pattern, message, re.IGNORECASE)),
        None,
    )


def foreign_domains(domains: Iterable[str], own: Iterable[str]) -> set[str]:
    """Domains that are neither ONNX's, nor ONNX Runtime's, nor of the model's own functions."""
    return set(domains) - {*ONNX_DOMAINS, RUNTIME_DOMAIN, *own}


SHOWN = 3
"""Refused nodes told in full."""
TRACES = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.name_scopes", "namespace")
"""What torch's newer exporter writes beside a node, the plainest first."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a compiler says about one node, or about the network.

    Of the network, `name` is empty and `node` negative.
    """

    message: str
    node: int = -1
    name: str = ""
    operator: str = ""


def explanation(path: Path, faults: Sequence[Fault]) -> str:
    """Every fault with the place it came from; the network is read for it, without its weights."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        model = onnx.ModelProto()
    messages = [_sentence(model, fault) for fault in faults[:SHOWN]]
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(messages) + more


def refused_operators(path: Path, faults: Sequence[Fault]) -> frozenset[str]:
    """Return the operators of all faults; "" stands for a fault that no node is known for."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        return frozenset(("",))
    nodes = [_place(model, fault)[0] for fault in faults]
    return frozenset("" if node is None else str(node.op_type) for node in nodes)


def refuse_foreign_operators(model: onnx.ModelProto) -> None:
    """Operators that no runtime here knows, before anything runs them. Raises NetworkRefused."""
    domains = foreign_domains(
        (node.domain for node in model.graph.node),
        (function.domain for function in model.functions),
    )
    faults = [
        Fault(
            message="it is no operator of ONNX", node=index, name=node.name, operator=node.op_type
        )
        for index, node in enumerate(model.graph.node)
        if node.domain in domains
    ]
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise NetworkRefused("; ".join(_sentence(model, fault) for fault in faults[:SHOWN]) + more)


def origin(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """The module that a node was exported from, as its exporter wrote it down, and the exporter."""
    properties = {prop.key: prop.value for prop in node.metadata_props}
    trace = next((properties[key] for key in TRACES if key in properties), "")
    scope = [part for part in node.name.split("/")[:-1] if part]
    if trace:
        place = f"from {_last_line(trace)}"
    elif scope:
        place = f"from module {'.'.join(scope)}"
    else:
        place = f"it makes tensor {node.output[0]!r}" if node.output else "it makes nothing"
    producer = (
        f"{model.producer_name} {model.producer_version}".strip()
        if model.producer_name
        else "an unknown exporter"
    )
    return f"{place}, exported by {producer}"


def _sentence(model: onnx.ModelProto, fault: Fault) -> str:
    node, outer = _place(model, fault)
    if node is None:
        where = f"node {fault.name} (operator {fault.operator}): " if fault.name else ""
        return f"{where}{_message(fault.message)}; way out: {advice(fault.operator, fault.message)}"
    inside = "" if outer is None else f" inside {outer.op_type} {outer.name}"
    blamed = node if outer is None else outer
    return (
        f"node {node.name or f'number {fault.node}'}{inside} (operator {node.op_type}; "
        f"{origin(model, blamed)}): {_message(fault.message)}; way out: "
        f"{advice(blamed.op_type, fault.message, blamed.domain)}"
    )


def _place(
    model: onnx.ModelProto, fault: Fault
) -> tuple[onnx.NodeProto | None, onnx.NodeProto | None]:
    """The node, and the loop or branch of the main graph that it stands in.

    By number if the operator there is the one told, else by name, else in a subgraph, else by a
    name that the words hold.
    """
    nodes = model.graph.node
    if _is_at(nodes, fault):
        return nodes[fault.node], None
    named = [node for node in nodes if node.name and node.name == fault.name]
    inner = [
        (graph.node[fault.node], outer)
        for outer in nodes
        for graph in _bodies(outer)
        if _is_at(graph.node, fault)
    ]
    message = sorted(
        (node for node in nodes if node.name and node.name in fault.message),
        key=lambda node: len(node.name),
    )
    return (
        (named[0], None)
        if named
        else inner[0]
        if inner
        else (message[-1], None)
        if message
        else (None, None)
    )


def _is_at(nodes: Sequence[onnx.NodeProto], fault: Fault) -> bool:
    return 0 <= fault.node < len(nodes) and nodes[fault.node].op_type == fault.operator


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [item.g for item in node.attribute if item.type == onnx.AttributeProto.GRAPH]


def _message(message: str) -> str:
    message = " ".join(message.split()).strip(" .;")
    return "the parser has no importer for it" if message in ("", "false") else message[:400]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("File ")), lines[-1])

"""Why a compiler refuses a network, in one sentence: node, operator, origin, and the way out.

Operators: the unsupported ones of onboarding/data/tensorrt_operators.yaml, and those whose output
has a size that only the values decide. Messages: as TensorRT-RTX 1.7 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.onnx_file import ONNX_DOMAINS
from onboarding.platform import operator_list

PLUGIN = (
    "or replace it in the ONNX file by standard ones (onnx-graphsurgeon), or name a TensorRT "
    "plugin that computes it (`engine.plugins`)"
)
TENSORRT_ONLY = frozenset(("NonZero", "NonMaxSuppression", "RoiAlign", "DeformConv"))
"""Operators of TensorRT's list that TensorRT-RTX 1.7 lacks: whatever it says of them."""
LACKS = re.compile(r"no importer|plugin|unsupported_node|operator.* not supported", re.IGNORECASE)
"""What a compiler says of an operator that it lacks; of shapes and types it says other things."""
RUNTIME_DOMAIN = "com.microsoft"
"""Operators that ONNX Runtime adds; TensorRT knows some of them by name."""
SHOWN = 3
"""Refused nodes explained in full."""
TRACES = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.name_scopes", "namespace")
"""What torch's newer exporter writes beside a node, the plainest first."""
BY_OPERATOR = {
    "NonZero Unique Compress": (
        "the size of its output is known only once it has run: keep the fixed size and use a mask "
        "(Where, Mul) instead"
    ),
    "StringNormalizer StringConcat StringSplit RegexFullMatch TfIdfVectorizer LabelEncoder "
    "Tokenizer": "no string enters an engine: cut these nodes off, and give the network numbers",
    "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SequenceMap SplitToSequence ConcatFromSequence Optional OptionalGetElement "
    "OptionalHasElement": (
        "no list of tensors enters an engine: write Python lists as one tensor (stack, split with "
        "fixed sizes), and export again"
    ),
    "DynamicQuantizeLinear MatMulInteger ConvInteger QLinearConv QLinearMatMul QLinearAdd "
    "QAttention DynamicQuantizeMatMul": (
        "the network is quantized already, for another runtime: name the float network, this "
        "build quantizes it itself"
    ),
    "Bernoulli Multinomial": "draw random numbers outside and give them to the network as an input",
    "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss": (
        "it belongs to training: export in evaluation mode, without the loss"
    ),
    "DFT MelWeightMatrix": (
        "compute the signal's features before the network, or as a MatMul with a constant matrix"
    ),
    "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor": "write it with integer Mul, Div and Mod",
    "Loop Scan If": (
        "replace the loop or branch by a fixed number of steps before exporting: control flow "
        "must not change any shape"
    ),
    "Resize Upsample": (
        "use nearest or linear without antialiasing, with fixed scales, and opset 13 or newer"
    ),
}
BY_MESSAGE = {
    r"convertDtype|Unsupported ONNX data type|data ?type": (
        "cast to FP32, FP16, INT64, INT32 or BOOL before it"
    ),
    r"requires inputs with type|validateTypes": (
        "cast its inputs to FP32, FP16, INT64 or INT32 before it"
    ),
    "unsupported input type of INT": "cast its inputs to FP32 or FP16 before it",
    "zero point": "quantize symmetrically: every zero point 0",
    "was not registered": (
        "it reads a tensor that the graph does not give it: export again, and run onnx.checker on "
        "the file"
    ),
    r"must be an initializer|is_weights|build-time constant": (
        "it needs a constant there: fold constants (onnxsim, or polygraphy surgeon sanitize "
        "--fold-constants)"
    ),
    "uint8": ("cast it to FP32 before this node: TensorRT reads UINT8 at inputs and outputs only"),
    r"dynamic|profile|dimension|shape": (
        "a size is fixed in the graph, or follows from values: export with dynamic axes, without "
        ".item() and Python sizes, or narrow the optimization profiles"
    ),
    r"memory|OutOfMemory": (
        "give the compiler more memory, or lower the largest batch and sequence of the profiles"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a compiler says about one node, or about the network.

    Of the network, `name` is empty and `node` negative.
    """

    message: str
    node: int = -1
    name: str = ""
    operator: str = ""


def advice(operator: str, message: str, domain: str = "") -> str:
    """Return the way out of a refused node, by its operator or by the compiler's message."""
    if domain == "ai.onnx.ml":
        return (
            "TensorRT has no operators of decision trees and classic machine learning: convert the "
            "model to tensor operators (hummingbird-ml: convert(model, 'onnx', samples))"
        )
    if domain not in (*ONNX_DOMAINS, RUNTIME_DOMAIN):
        return f"operator domain {domain!r} is not ONNX's: export with standard operators, {PLUGIN}"
    for operators, way_out in BY_OPERATOR.items():
        if operator in operators.split():
            return way_out
    for pattern, way_out in BY_MESSAGE.items():
        if re.search(pattern, message, re.IGNORECASE):
            return way_out
    return f"write it with other operators (another opset of the exporter may), {PLUGIN}"


def explanation(path: Path, faults: Sequence[Fault]) -> str:
    """Return every fault with its origin; the network is read without its weights."""
    return _explain(_read_graph(path), faults)


def operators_of_tensorrt(path: Path, faults: Sequence[Fault]) -> frozenset[str]:
    """Return the operators of all faults where TensorRT has each of them; none where it may not.

    It has what its own list supports without restriction and this compiler says that it lacks.
    """
    model, operators = _read_graph(path), set()
    for fault in faults:
        node, _ = _refused_node(model, fault)
        if node is None or node.domain not in ONNX_DOMAINS or not _lacks(node.op_type, fault):
            return frozenset()
        operators.add(str(node.op_type))
    return frozenset(operators)


def _lacks(operator: str, fault: Fault) -> bool:
    """Return True where a fault says that the compiler lacks an operator that TensorRT has."""
    if operator in TENSORRT_ONLY:
        return True
    is_silent = " ".join(fault.message.split()).strip(" .;") in ("", "false")
    says_so = is_silent or LACKS.search(fault.message) is not None
    return says_so and operator in operator_list().supported


def refuse_foreign_operators(model: onnx.ModelProto) -> None:
    """Refuse operators that no runtime here knows, before any runs them. Raises NetworkRefused."""
    known = {*ONNX_DOMAINS, RUNTIME_DOMAIN, *(function.domain for function in model.functions)}
    message = "it is no operator of ONNX"
    faults = [
        Fault(message=message, node=index, name=node.name, operator=node.op_type)
        for index, node in enumerate(model.graph.node)
        if node.domain not in known
    ]
    if faults:
        raise NetworkRefused(_explain(model, faults))


def origin(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """Return the module that a node was exported from, and the exporter, by its own notes."""
    properties = {entry.key: entry.value for entry in node.metadata_props}
    trace = next((properties[key] for key in TRACES if key in properties), "")
    scope = [part for part in node.name.split("/")[:-1] if part]
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    if lines:
        file = next((line for line in reversed(lines) if line.startswith("File ")), lines[-1])
        source = f"from {file}"
    elif scope:
        source = f"from module {'.'.join(scope)}"
    else:
        source = f"it makes tensor {node.output[0]!r}" if node.output else "it makes nothing"
    exporter = "an unknown exporter"
    if model.producer_name:
        exporter = f"{model.producer_name} {model.producer_version}".strip()
    return f"{source}, exported by {exporter}"


def _read_graph(path: Path) -> onnx.ModelProto:
    """Return the network without external weights; an empty one where it cannot be read."""
    try:
        return onnx.load(path, load_external_data=False)
    except Exception:
        return onnx.ModelProto()


def _explain(model: onnx.ModelProto, faults: Sequence[Fault]) -> str:
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(_sentence(model, fault) for fault in faults[:SHOWN]) + more


def _sentence(model: onnx.ModelProto, fault: Fault) -> str:
    reason = " ".join(fault.message.split()).strip(" .;")[:400]
    if reason in ("", "false"):
        reason = "the parser has no importer for it"
    node, outer = _refused_node(model, fault)
    if node is None:
        where = f"node {fault.name} (operator {fault.operator}): " if fault.name else ""
        return f"{where}{reason}; way out: {advice(fault.operator, fault.message)}"
    inside = "" if outer is None else f" inside {outer.op_type} {outer.name}"
    top = node if outer is None else outer
    return (
        f"node {node.name or f'number {fault.node}'}{inside} (operator {node.op_type}; "
        f"{origin(model, top)}): {reason}; way out: "
        f"{advice(top.op_type, fault.message, top.domain)}"
    )


def _refused_node(
    model: onnx.ModelProto, fault: Fault
) -> tuple[onnx.NodeProto | None, onnx.NodeProto | None]:
    """Return the node, and the loop or branch of the main graph that it stands in.

    By number if the operator there is the fault's, else by name, else in a subgraph, else by the
    longest name that the message holds.
    """
    nodes = model.graph.node
    if _is_at(nodes, fault):
        return nodes[fault.node], None
    named = [node for node in nodes if node.name]
    for node in named:
        if node.name == fault.name:
            return node, None
    for outer in nodes:
        for attribute in outer.attribute:
            if _is_at(attribute.g.node, fault):
                return attribute.g.node[fault.node], outer
    mentioned = [node for node in named if node.name in fault.message]
    return max(mentioned, key=lambda node: len(node.name), default=None), None


def _is_at(nodes: Sequence[onnx.NodeProto], fault: Fault) -> bool:
    return 0 <= fault.node < len(nodes) and nodes[fault.node].op_type == fault.operator

"""Checks a program's file before torch reads it: it may hold tensors and a graph of aten.

`torch.export.load` unpickles what the file says is pickled, evaluates expressions and guards as
Python, and writes names of inputs and weights into Python that it runs. Here every entry of the
file, every name and every field that it would run is on a list, or the file is refused. torch gets
a copy of what was checked, so its reader of zip files and Python's cannot see two files in one.
Needs the standard library alone. Source: torch 2.13, torch/export/pt2_archive/_package.py,
torch/_export/serde/serialize.py and torch/fx/graph.py.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

FOLDER = "model"
SIGNATURE_FILE = "extra/roundhouse.json"
GRAPH_FILE = "models/model.json"
SAMPLE_INPUTS = "data/sample_inputs/model.pt"
CONFIGURATIONS = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)
ENTRIES = frozenset(
    (
        *("archive_format", "archive_version", "byteorder", ".data/version"),
        *(".data/serialization_id", GRAPH_FILE, SAMPLE_INPUTS, SIGNATURE_FILE, *CONFIGURATIONS),
    )
)
TENSOR_ENTRY = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]+")
TENSOR_NAME = re.compile(r"(weight|tensor)_[0-9]+")
ATEN = re.compile(r"torch\.ops\.aten\.(?P<name>[A-Za-z0-9_]+)\.[A-Za-z0-9_]+")
OPENS_FILES = frozenset(("from_file", "save"))
"""Of the 3,754 operators of aten in torch 2.13, those that read or write a file by its name."""
SIZE_OPERATORS = frozenset(
    (
        *(f"_operator.{name}" for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "pow")),
        *(f"_operator.{name}" for name in ("truediv", "eq", "ne", "ge", "gt", "le", "lt")),
        *(f"torch.sym_{name}" for name in ("int", "float", "max", "min", "not", "ite")),
    )
)
"""Arithmetic of sizes that are not known before a run."""
CODE_FIELDS = frozenset(("as_custom_obj", "as_graph", "as_operator", "as_opaque"))
"""Arguments that are objects, graphs of their own, or operators by name."""
EXPRESSION_TOKEN = re.compile(
    r"\s+|[0-9]+(\.[0-9]+)?|[-+*/%(),<>=&|~]|'[su][0-9]+'|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
)
EXPRESSION_WORDS = frozenset(
    (
        *("Max", "Min", "Eq", "Ne", "Ge", "Gt", "Le", "Lt", "And", "Or", "Not", "True", "False"),
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilDiv"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "IntTrueDiv", "FloatTrueDiv"),
        *("PowByNatural", "FloatPow", "ToFloat", "Identity", "int_oo"),
        # As sympy writes a size with its assumptions: Mul(Integer(4), Symbol('s0', positive=True)).
        *("Symbol", "Integer", "Rational", "Float", "Add", "Mul", "Pow"),
        *("positive", "nonnegative", "integer", "precision"),
    )
)
SYMBOL = re.compile(r"[su][0-9]+")
POWER = re.compile(r"\*\*|Pow")
LONG_NUMBER, LONG_EXPONENT = re.compile(r"[0-9]{20}"), re.compile(r"[0-9]{7}")
LONGEST_EXPRESSION = 2000
NAME = re.compile(r"[A-Za-z0-9_]*(\.(?!__)[A-Za-z0-9_]+)*")
"""Of nodes, inputs and weights, which torch writes into Python; names of weights have dots."""
TEXT_FIELDS = frozenset(("as_string", "as_strings", "torch_version"))
"""Fields that torch writes into Python as quoted strings, or nowhere."""
TREE_TYPES = frozenset((None, "builtins.tuple", "builtins.list", "builtins.dict"))
TREE_CONTEXTS = frozenset((None, "null", "[]"))


class ProgramRefused(Exception):
    """The file holds what no build writes; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class ProgramInput:
    """An input of a program: KServe's name of its datatype, and its rank."""

    name: str
    datatype: str
    rank: int


@dataclass(frozen=True, kw_only=True)
class ProgramSignature:
    """A program's inputs and outputs, in the order of its own."""

    inputs: tuple[ProgramInput, ...]
    outputs: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the signature as JSON."""
        inputs = [vars(item) for item in self.inputs]
        return json.dumps({"inputs": inputs, "outputs": list(self.outputs)}).encode()


def scan_program(path: Path) -> tuple[ProgramSignature, io.BytesIO]:
    """Return the signature of a program that holds nothing that runs code, and a copy of its file.

    Raises ProgramRefused.
    """
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as archive:
            _copy_entries(archive, copy)
        with zipfile.ZipFile(copy) as archive:
            for name in CONFIGURATIONS:
                document = _document(archive, name)
                _refuse_pickles(name, document)
                _refuse_empty_tensors(archive, name, document)
            _refuse_code(_document(archive, GRAPH_FILE))
            signature = _signature(_document(archive, SIGNATURE_FILE))
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as fault:
        raise _no_program(path, fault) from fault
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise _no_program(path, fault) from fault
    copy.seek(0)
    return signature, copy


def _no_program(path: Path, fault: Exception) -> ProgramRefused:
    reason = " ".join(repr(fault).split())[:200]
    return ProgramRefused(
        f"{path.name} is no program of a build ({reason}); build the engine again."
    )


def _copy_entries(archive: zipfile.ZipFile, copy: IO[bytes]) -> None:
    """Write the entries of a file again, each by its name in one folder, if all are on the list."""
    names: set[str] = set()
    with zipfile.ZipFile(copy, "w") as written:
        for entry in archive.infolist():
            folder, _, name = entry.filename.partition("/")
            if name in names or entry.compress_type != zipfile.ZIP_STORED:
                raise _refusal(f"entry {entry.filename!r:.100} is there twice, or compressed")
            if folder != FOLDER or (name not in ENTRIES and not TENSOR_ENTRY.fullmatch(name)):
                raise _refusal(f"entry {entry.filename!r:.100} is none of a program")
            if name == SAMPLE_INPUTS and entry.file_size:
                raise _refusal("its sample inputs are pickled")
            names.add(name)
            written.writestr(zipfile.ZipInfo(f"{FOLDER}/{name}"), archive.read(entry))


def _refuse_pickles(name: str, document: Mapping[str, Any]) -> None:
    for tensor, fields in document["config"].items():
        if fields["use_pickle"] is not False or not TENSOR_NAME.fullmatch(fields["path_name"]):
            raise _refusal(f"tensor {tensor!r:.100} of {name} is pickled")
        _refuse_name(tensor)


def _refuse_empty_tensors(archive: zipfile.ZipFile, name: str, document: Mapping[str, Any]) -> None:
    """Refuse tensors of values that the file lacks: torch makes zeros of any size of them."""
    folder = f"{FOLDER}/{name.rpartition('/')[0]}"
    for tensor, fields in document["config"].items():
        sizes = [size["as_int"] for size in fields["tensor_meta"]["sizes"]]
        is_empty = not archive.getinfo(f"{folder}/{fields['path_name']}").file_size
        if is_empty and 0 not in sizes:
            raise _refusal(f"tensor {tensor!r:.100} of {name} has a shape and no values")


def _refuse_code(document: Mapping[str, Any]) -> None:
    if document["guards_code"]:
        raise _refusal("it has guards, which run as Python")
    for node in document["graph_module"]["graph"]["nodes"]:
        if node["metadata"]:
            raise _refusal(f"node {node['name']!r:.100} has metadata, which no run needs")
    for name in document["range_constraints"]:
        _refuse_expression(name)
    for key, value in _fields({**document, "range_constraints": {}}):
        if key in CODE_FIELDS:
            raise _refusal(f"a value is {key}")
        _refuse_name(key)
        if isinstance(value, str) and key not in TEXT_FIELDS:
            REFUSALS.get(key, _refuse_name)(value)


def _refuse_operator(target: str) -> None:
    aten = ATEN.fullmatch(target)
    if target not in SIZE_OPERATORS and (aten is None or aten["name"] in OPENS_FILES):
        raise _refusal(f"operator {target!r:.100} is not of aten")


def _refuse_name(text: str) -> None:
    if not NAME.fullmatch(text):
        raise _refusal(f"{text!r:.100} is no name")


def _refuse_tree(text: str) -> None:
    """Refuse inputs or outputs of other types than Python's: torch imports what they name."""
    for key, value in _fields(json.loads(text)):
        known = {"type": TREE_TYPES, "context": TREE_CONTEXTS}.get(key)
        if known is not None and value not in known:
            raise _refusal(f"its inputs or outputs have the {key} {value!r:.100}")


def _refuse_expression(text: str) -> None:
    """Refuse a size that is more than arithmetic of sizes: sympy evaluates it as Python."""
    powers = len(POWER.findall(text))
    is_huge = LONG_NUMBER.search(text) or (powers and LONG_EXPONENT.search(text))
    if len(text) > LONGEST_EXPRESSION or powers > 1 or is_huge:
        raise _refusal(f"size {text!r:.100} is too long, or of more than one power")
    place = 0
    while place < len(text):
        token = EXPRESSION_TOKEN.match(text, place)
        word = None if token is None else token["word"]
        known = word is None or word in EXPRESSION_WORDS or SYMBOL.fullmatch(word)
        if token is None or not known:
            raise _refusal(f"size {text!r:.100} is no arithmetic")
        place = token.end()


REFUSALS: Mapping[str, Callable[[str], None]] = {
    "expr_str": _refuse_expression,
    "target": _refuse_operator,
    "in_spec": _refuse_tree,
    "out_spec": _refuse_tree,
}
"""Checks of fields that are more than names."""


def _fields(value: Any, of: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of every object inside a document with its value, and of lists each item."""
    pairs: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = ((of, item) for item in value)
    for key, item in pairs:
        yield key, item
        yield from _fields(item, key)


def _signature(document: Mapping[str, Any]) -> ProgramSignature:
    return ProgramSignature(
        inputs=tuple(ProgramInput(**fields) for fields in document["inputs"]),
        outputs=tuple(map(str, document["outputs"])),
    )


def _document(archive: zipfile.ZipFile, name: str) -> Any:
    return json.loads(archive.read(f"{FOLDER}/{name}"))


def _refusal(reason: str) -> ProgramRefused:
    return ProgramRefused(f"the program is refused: {reason}; build the engine again.")

"""What a program's file may hold, checked before torch reads it: tensors and a graph of aten.

`torch.export.load` unpickles what the file says is pickled, and evaluates expressions and guards as
Python. Here every entry of the file and every field that it would run is on a list, or the file is
refused. Needs the standard library alone. Source: torch 2.13, torch/export/pt2_archive/_package.py
and torch/_export/serde/serialize.py.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
READS_FILES = frozenset(("from_file",))
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


def scan_program(path: Path) -> ProgramSignature:
    """Return the signature of a program whose file holds nothing that runs code.

    Raises ProgramRefused.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = _refuse_entries(archive)
            for name in CONFIGURATIONS:
                _refuse_pickles(name, _document(archive, names[name]))
            _refuse_code(_document(archive, names[GRAPH_FILE]))
            return _signature(_document(archive, names[SIGNATURE_FILE]))
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise ProgramRefused(
            f"{path.name} is no program of a build ({' '.join(repr(fault).split())[:200]}); build "
            "the engine again."
        ) from fault


def _refuse_entries(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the entries by their names inside the file's one folder."""
    names: dict[str, str] = {}
    for entry in archive.infolist():
        name = entry.filename.partition("/")[2]
        if name in names or entry.compress_type != zipfile.ZIP_STORED:
            raise _refusal(f"entry {entry.filename!r:.100} is there twice, or compressed")
        if name not in ENTRIES and not TENSOR_ENTRY.fullmatch(name):
            raise _refusal(f"entry {entry.filename!r:.100} is none of a program")
        if name == SAMPLE_INPUTS and entry.file_size:
            raise _refusal("its sample inputs are pickled")
        names[name] = entry.filename
    folders = {name.partition("/")[0] for name in names.values()}
    if len(folders) != 1 or archive.comment:
        raise _refusal("its entries lie in several folders, or a comment follows them")
    return names


def _refuse_pickles(name: str, document: Mapping[str, Any]) -> None:
    for tensor, fields in document["config"].items():
        if fields["use_pickle"] is not False or not TENSOR_NAME.fullmatch(fields["path_name"]):
            raise _refusal(f"tensor {tensor!r:.100} of {name} is pickled")


def _refuse_code(document: Mapping[str, Any]) -> None:
    if document["guards_code"]:
        raise _refusal("it has guards, which run as Python")
    for node in document["graph_module"]["graph"]["nodes"]:
        target = node["target"]
        aten = ATEN.fullmatch(target)
        if target not in SIZE_OPERATORS and (aten is None or aten["name"] in READS_FILES):
            raise _refusal(f"operator {target!r:.100} is not of aten")
        if node["metadata"]:
            raise _refusal(f"node {node['name']!r:.100} has metadata, which no run needs")
    for name in document["range_constraints"]:
        _refuse_expression(name)
    for key, value in _fields(document):
        if key in CODE_FIELDS:
            raise _refusal(f"a value is {key}")
        if key == "expr_str":
            _refuse_expression(value)


def _refuse_expression(text: str) -> None:
    """Refuse a size that is more than arithmetic of sizes: sympy evaluates it as Python."""
    place = 0
    while place < len(text):
        token = EXPRESSION_TOKEN.match(text, place)
        word = None if token is None else token["word"]
        known = word is None or word in EXPRESSION_WORDS or SYMBOL.fullmatch(word)
        if token is None or not known:
            raise _refusal(f"size {text!r:.100} is no arithmetic")
        place = token.end()


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of every object inside a document, with its value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from _fields(item)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item)


def _signature(document: Mapping[str, Any]) -> ProgramSignature:
    return ProgramSignature(
        inputs=tuple(ProgramInput(**fields) for fields in document["inputs"]),
        outputs=tuple(map(str, document["outputs"])),
    )


def _document(archive: zipfile.ZipFile, name: str) -> Any:
    return json.loads(archive.read(name))


def _refusal(reason: str) -> ProgramRefused:
    return ProgramRefused(f"the program is refused: {reason}; build the engine again.")

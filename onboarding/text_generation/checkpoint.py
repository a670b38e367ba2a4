"""A text generator's checkpoint without its weights: config.json and the tensors' headers.

No tensor is read: a safetensors file begins with the length of its header (8 bytes, little-endian)
and the header, JSON of each tensor's type, shape and place.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

CONFIGURATION = "config.json"
TOKENIZER = "tokenizer_config.json"
TOKENIZERS = (TOKENIZER, "tokenizer.json", "tokenizer.model", "vocab.json")
CHAT_TEMPLATES = ("chat_template.jinja", "chat_template.json")
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SAFETENSORS, PICKLES = ".safetensors", (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_NUMBER = re.compile(r"\.\d+(?=\.)\.")
LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000
"""Bytes; the safetensors library refuses longer ones too."""
DTYPE_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
COMPRESSED = "compressed-tensors"
FORMATS = {
    "float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "gptq",
    "nvfp4-pack-quantized": "nvfp4", "fp8": "fp8", "awq": "awq", "gptq": "gptq", "mxfp4": "mxfp4",
}  # fmt: skip
"""Number formats by quantization_config's `format` (compressed-tensors) or `quant_method`."""
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


@dataclass(frozen=True, kw_only=True)
class TensorHeader:
    """Type and shape of one tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Numbers in the tensor."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the tensor in the file."""
        return self.elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The contents of config.json, and every tensor by its name.

    `has_chat_template`: whether its tokenizer turns messages into a prompt; None: not known.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, TensorHeader]
    has_chat_template: bool | None = None

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The part of config.json about text, where a model also takes images."""
        text = self.config.get("text_config")
        return {**self.config, **text} if isinstance(text, Mapping) else self.config

    @cached_property
    def kinds(self) -> tuple[tuple[str, TensorHeader, int], ...]:
        """Tensors that are alike in all layers and experts: a name with 0 for numbers, and a count.

        Tensors of one such name and of another type or shape are another kind.
        """
        counts = Counter(
            (_NUMBER.sub(".0.", name), tensor) for name, tensor in self.tensors.items()
        )
        return tuple((name, tensor, count) for (name, tensor), count in counts.items())

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, as the files hold them."""
        return sum(tensor.bytes * count for _, tensor, count in self.kinds)

    @property
    def quantization(self) -> Mapping[str, Any] | None:
        """How config.json says that weights are quantized already; None: they are not."""
        found = self.text_config.get("quantization_config")
        return found if isinstance(found, Mapping) else None

    @property
    def is_quantized(self) -> bool:
        """True where config.json says that weights are quantized already."""
        return self.quantization is not None

    @property
    def scheme(self) -> str | None:
        """The number format that weights are quantized in already; None: not, or not known."""
        quantization = self.quantization
        if quantization is None:
            return None
        method = quantization.get("quant_method")
        return FORMATS.get(str(quantization.get("format") if method == COMPRESSED else method))

    def document(self) -> str:
        """Return the text of a headers file."""
        tensors = {
            name: [tensor.dtype, list(tensor.shape)]
            for name, tensor in sorted(self.tensors.items())
        }
        lines = ",\n  ".join(
            f"{json.dumps(name)}: {json.dumps(value)}" for name, value in tensors.items()
        )
        config = json.dumps(self.config, sort_keys=True)
        chat = "" if self.has_chat_template is None else (
            f' "chat_template": {json.dumps(self.has_chat_template)},\n'
        )  # fmt: skip
        return f'{{"config": {config},\n{chat} "tensors": {{\n  {lines}}}}}\n'


class CheckpointError(ValueError):
    """What is wrong with a checkpoint, and the way out."""

    def __init__(self, what: str, way_out: str) -> None:
        self.what, self.way_out = what, way_out
        super().__init__(f"{what}; {way_out}")


def read_headers_file(path: Path) -> Checkpoint:
    """Return the checkpoint of a headers file. Raises CheckpointError."""
    way_out = "write it anew with `roundhouse check --fetch-headers`"
    if not path.is_file():
        raise CheckpointError("is no file under the onboarding root", way_out)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        config, tensors = document["config"], document["tensors"]
        has_template = document.get("chat_template")
        if not isinstance(config, dict) or not isinstance(has_template, bool | None):
            raise TypeError
        return Checkpoint(
            config=config,
            has_chat_template=has_template,
            tensors={
                name: _tensor(name, {"dtype": item[0], "shape": item[1]})
                for name, item in tensors.items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise CheckpointError("is no file of headers", way_out) from error


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Return the tensors of a safetensors file. Raises CheckpointError for a damaged one."""
    with path.open("rb") as file:
        first = file.read(LENGTH_BYTES)
        return parse_header(path.name, first + file.read(header_bytes(path.name, first)))


def read_folder(folder: Path) -> Checkpoint:
    """Return the checkpoint of a folder. Raises CheckpointError for one that is not whole."""
    config = _json(folder, CONFIGURATION)
    tensors: dict[str, TensorHeader] = {}
    for name, expected in shard_names(folder).items():
        header = read_header(folder / name)
        missing = sorted(expected - header.keys())
        if missing:
            raise CheckpointError(
                f"{name} has no tensor {missing[0]}, which {INDEX} places there",
                "fetch or save the checkpoint again",
            )
        tensors |= header
    has_template = has_chat_template(
        {path.name for path in folder.iterdir()}, lambda name: (folder / name).read_bytes()
    )
    return Checkpoint(config=config, tensors=tensors, has_chat_template=has_template)


def has_chat_template(names: Collection[str], read: Callable[[str], bytes | None]) -> bool | None:
    """Return whether a tokenizer has a chat template, by the names of a checkpoint's files.

    None where no file of a tokenizer is there, or its configuration is no JSON.
    """
    if not set(names).isdisjoint(CHAT_TEMPLATES):
        return True
    if set(names).isdisjoint(TOKENIZERS):
        return None
    content = read(TOKENIZER) if TOKENIZER in names else None
    try:
        document = {} if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return isinstance(document, Mapping) and "chat_template" in document


def shard_names(folder: Path) -> dict[str, frozenset[str]]:
    """Return the safetensors files of a folder, each with the tensors that the index names in it.

    Raises CheckpointError where one is missing.
    """
    if (folder / INDEX).is_file():
        shards = index_shards((folder / INDEX).read_bytes())
        missing = sorted(name for name in shards if not (folder / name).is_file())
        if missing:
            raise CheckpointError(
                f"{missing[0]} is missing, which {INDEX} names",
                "add the file, or save the checkpoint again",
            )
        return shards
    if (folder / SINGLE).is_file():
        return {SINGLE: frozenset()}
    raise pickle_fault(path.name for path in folder.iterdir()) or CheckpointError(
        f"has neither {SINGLE} nor {INDEX}", "save it with transformers, which writes safetensors"
    )


def pickle_fault(names: Iterable[str]) -> CheckpointError | None:
    """Return why files cannot be served that hold pickles in place of safetensors, or None."""
    paths = [PurePosixPath(name) for name in names]
    pickles = sorted(path.name for path in paths if path.suffix in PICKLES)
    if not pickles or any(path.suffix == SAFETENSORS for path in paths):
        return None
    return CheckpointError(
        f"keeps weights in {pickles[0]}, a pickle, which can run code when it is read",
        "convert it with transformers, which writes safetensors",
    )


def index_shards(content: bytes) -> dict[str, frozenset[str]]:
    """Return the files of an index, each with its tensors. Raises CheckpointError."""
    try:
        places: dict[str, str] = json.loads(content)["weight_map"]
        shards: dict[str, set[str]] = {}
        for tensor, file in places.items():
            if "/" in file or file.startswith("."):
                raise ValueError(file)
            shards.setdefault(file, set()).add(tensor)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{INDEX} is no index of safetensors files", "fetch or save it again"
        ) from error
    return {name: frozenset(tensors) for name, tensors in sorted(shards.items())}


def header_bytes(name: str, first: bytes) -> int:
    """Return the length of a header from a file's first 8 bytes. Raises CheckpointError."""
    length = int.from_bytes(first, "little")
    if len(first) < LENGTH_BYTES or not 2 <= length <= LARGEST_HEADER:
        raise CheckpointError(f"{name} does not begin as safetensors do", "fetch or save it again")
    return length


def parse_header(name: str, content: bytes) -> dict[str, TensorHeader]:
    """Return the tensors of a file's beginning, 8 bytes and the header. Raises CheckpointError."""
    try:
        length = header_bytes(name, content[:LENGTH_BYTES])
        document = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + length])
        return {
            tensor: _tensor(tensor, item)
            for tensor, item in document.items()
            if tensor != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{name} has no header of safetensors", "fetch or save it again"
        ) from error


def _tensor(name: str, item: Mapping[str, Any]) -> TensorHeader:
    dtype, shape = item["dtype"], item["shape"]
    if dtype not in DTYPE_BYTES:
        raise CheckpointError(
            f"tensor {name} is of type {dtype}, which is not known here", "save it as BF16"
        )
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(name)
    return TensorHeader(dtype=dtype, shape=tuple(shape))


def _json(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        raise CheckpointError(f"has no {name}", "save it with transformers")
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is no JSON", "fetch or save it again") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{name} holds no JSON object", "fetch or save it again")
    return document

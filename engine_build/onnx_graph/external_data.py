"""Weights beside an ONNX file: protobuf, and so ONNX, holds at most 2 GiB in one file.

A network of a build is `<name>.onnx` alone or, beyond that, `<name>.onnx` and `model.onnx.data` in
a folder of its own, which ONNX Runtime and TensorRT's parser read beside it. A user's ONNX file may
name any number of such files, in its own folder or below. Source: onnx.proto3,
TensorProto.external_data.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import SourceFault
from engine_build.onnx_graph.network_store import DATA_NAME, data_file
from engine_build.store import link_or_copy, sha256_of
from onboarding.checkpoint import files_sha256

if TYPE_CHECKING:
    from engine_build.ort import OrtNetwork

LARGEST_ONNX_BYTES = 2**31 - 1
RESERVED_BYTES = 64 << 20
"""For everything in an ONNX file but its weights."""
LEAST_EXTERNAL = 1024
"""Bytes; smaller constants stay in the ONNX file: shapes and axes follow from them."""
PAGE = 4096
"""Weights begin at multiples of it, so that they can be mapped into memory."""


def refuse_large(name: str, size: int) -> None:
    """Refuse a file before it is read: protobuf, and so ONNX, reads no larger one."""
    if size > LARGEST_ONNX_BYTES:
        raise SourceFault(
            f"{name} has {size / 1e9:.2f} GB, and an ONNX file has {LARGEST_ONNX_BYTES / 1e9:.2f} "
            "at most; save its weights beside it: onnx.save(model, path, "
            "save_as_external_data=True)."
        )


def external_names(name: str, model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the files that weights lie in, relative to the ONNX file's folder, sorted.

    Raises SourceFault for one outside that folder.
    """
    names = set()
    for _, tensor in model_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            names.add(entries.get("location", ""))
    for place in sorted(names):
        path = PurePosixPath(place)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise SourceFault(
                f"{name} keeps weights in {place!r}, which is no file of its folder; save it "
                "again with its data beside it."
            )
    return tuple(sorted(names))


def external_files(path: Path, model: onnx.ModelProto | None = None) -> tuple[str, ...]:
    """Return `external_names` of a file, each of which is there; `model` is the file, if read.

    Raises SourceFault.
    """
    model = onnx.load(path, load_external_data=False) if model is None else model
    names = external_names(path.name, model)
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise SourceFault(
            f"{path.name} keeps weights in {missing[0]}, which is not beside it; put it there, or "
            "save the network again."
        )
    return names


def load_model(path: Path) -> onnx.ModelProto:
    """Return an ONNX file with the weights of its data files in memory. Raises SourceFault."""
    model = onnx.load(path, load_external_data=False)
    external_files(path, model)
    load_weights(model, path.parent)
    return model


def load_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Read the weights of data files, whose names were checked, into a model. Raises SourceFault.

    onnx.load_external_data_for_model refuses files with several hard links, as a folder's store
    makes them.
    """
    for name, tensor in model_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        with (folder / entries["location"]).open("rb") as file:
            file.seek(int(entries.get("offset", 0)))
            length = int(entries.get("length", _size(tensor)))
            data = file.read(length)
        if len(data) != length:
            raise SourceFault(
                f"{entries['location']} ends before weight {name} does; it was cut short: save the "
                "network again."
            )
        tensor.raw_data = data
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy, for ONNX's checker, in which weights of data files are empty.

    By path it would refuse a data file with several hard links, whatever is in it.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for _, tensor in model_tensors(result):
        if tensor.data_location == TensorProto.EXTERNAL:
            for field in ("external_data", "data_location", "dims"):
                tensor.ClearField(field)
            tensor.dims.append(0)
            tensor.raw_data = b""
    return result


def onnx_sha256(path: Path) -> str:
    """Return the digest of an ONNX file; with data files, that of all, as a checkpoint folder's.

    `sha256sum` of what `sha256sum` prints of them, sorted by path.
    """
    names = external_files(path)
    return files_sha256(path.parent, sorted((path.name, *names))) if names else sha256_of(path)


def model_tensors(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield every tensor that a model carries, with the name of its weight or node."""
    lists = [model.graph.node, *(function.node for function in model.functions)]
    bodies = [graph for nodes in lists for graph in subgraphs(nodes)]
    for graph in (model.graph, *bodies):
        yield from ((weight.name, weight) for weight in graph.initializer)
        for sparse in graph.sparse_initializer:
            yield from ((sparse.values.name, part) for part in (sparse.values, sparse.indices))
    for node in chain(*lists, *(graph.node for graph in bodies)):
        name = node.output[0] if node.output else node.name
        for attribute in node.attribute:
            sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
            parts = [part for tensor in sparse for part in (tensor.values, tensor.indices)]
            for tensor in (attribute.t, *attribute.tensors, *parts):
                # An attribute of another type has empty tensors.
                if tensor.ByteSize():
                    yield name, tensor


def network_sha256(network: Path) -> str:
    """Return the digest of a network of a build, its data file included."""
    data = data_file(network)
    if data is None:
        return sha256_of(network)
    return files_sha256(network.parent, sorted((network.name, data.name)))


def copy_network(source: Path, target: Path) -> None:
    """Copy a network of a build, its data file by a hard link where the disk allows it."""
    shutil.copyfile(source, target)
    data = data_file(source)
    if data is not None:
        link_or_copy(data, target.with_name(DATA_NAME))


def save_model(
    model: onnx.ModelProto, path: Path, *, largest: int = LARGEST_ONNX_BYTES - RESERVED_BYTES
) -> None:
    """Write a network whose weights are in memory: as one file if they have `largest` bytes."""
    data = path.with_name(DATA_NAME)
    data.unlink(missing_ok=True)
    if weight_bytes(model) <= largest:
        onnx.save(model, path)
        return
    with data.open("wb") as file:
        onnx.save(_with_external_weights(model, file), path)


def pack_network(
    source: Path, target: Path, *, largest: int = LARGEST_ONNX_BYTES - RESERVED_BYTES
) -> None:
    """Move a network with any data files to `target`, as networks of a build lie.

    One without is moved as it is.
    """
    names = external_files(source)
    if not names:
        source.replace(target)
        return
    model = load_model(source)
    for name in (source.name, *names):
        (source.parent / name).unlink()
    save_model(model, target, largest=largest)


def load_network(
    model: onnx.ModelProto,
    *,
    largest: int = LARGEST_ONNX_BYTES - RESERVED_BYTES,
    fuses_qdq: bool = True,
) -> OrtNetwork:
    """Load a network from memory; one beyond `largest` bytes by way of a file. Raises SourceFault.

    `fuses_qdq` is OrtNetwork's. ONNX Runtime keeps the file mapped, so it may be deleted at once.
    """
    # The contract tests read networks in an environment without ONNX Runtime.
    from engine_build.ort import OrtNetwork

    if weight_bytes(model) <= largest:
        return OrtNetwork(model.SerializeToString(), fuses_qdq=fuses_qdq)
    with tempfile.TemporaryDirectory(prefix="network-") as folder:
        path = Path(folder) / "model.onnx"
        save_model(model, path, largest=largest)
        return OrtNetwork(path, fuses_qdq=fuses_qdq)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Return the bytes of a main graph's weights, whether they are read or not."""
    return sum(map(_size, model.graph.initializer))


def _size(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    count = int(np.prod(tensor.dims, dtype=np.int64))
    return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _with_external_weights(model: onnx.ModelProto, file: BinaryIO) -> onnx.ModelProto:
    """Return the model without its large weights, which are written to `file`."""
    result, graph = onnx.ModelProto(), onnx.GraphProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(result, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy_field(graph, field.name, value)
    for tensor in model.graph.initializer:
        is_large = tensor.data_type != TensorProto.STRING and _size(tensor) >= LEAST_EXTERNAL
        graph.initializer.append(_external(tensor, file) if is_large else tensor)
    result.graph.CopyFrom(graph)
    return result


def _copy_field(target: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    if isinstance(value, (str, int, bytes)):
        setattr(target, name, value)
    elif isinstance(value, Iterable):
        getattr(target, name).extend(value)
    else:
        getattr(target, name).CopyFrom(value)


def _external(tensor: onnx.TensorProto, file: BinaryIO) -> onnx.TensorProto:
    file.write(b"\0" * (-file.tell() % PAGE))
    offset = file.tell()
    data = tensor.raw_data
    file.write(data if data else numpy_helper.to_array(tensor).tobytes())
    result = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    result.data_location = TensorProto.EXTERNAL
    entries = {"location": DATA_NAME, "offset": str(offset), "length": str(file.tell() - offset)}
    for key, value in entries.items():
        result.external_data.add(key=key, value=value)
    return result


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of the loops and branches among nodes, and those inside them."""
    for node in nodes:
        for graph in bodies(node):
            yield graph
            yield from subgraphs(graph.node)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of a Loop, If or Scan; nothing for other nodes."""
    for attribute in node.attribute:
        # An attribute of another type has an empty graph.
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs

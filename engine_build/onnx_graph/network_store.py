"""Networks: their records and files in a store, their classes, and the shapes that they answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, ValidationError

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.store import Store, sha256_of
from onboarding.manifest import ImageProcessor, Prompts, TensorRecord
from onboarding.names import network_path
from onboarding.values import Value

if TYPE_CHECKING:
    from engine_build.ort import OrtNetwork

DATA_NAME = "model.onnx.data"


def data_file(network: Path) -> Path | None:
    """Return the data file beside a network of a build; None where it is one file."""
    path = network.with_name(DATA_NAME)
    return path if path.is_file() else None


def class_count(network: Network, output: str | None = None) -> int | None:
    """Return the classes that an output's scores stand for; None when it is no [batch, classes].

    `output`: by default the only one.
    """
    if network.labels is not None:
        return len(network.labels)
    named = [record.shape for record in network.outputs if output in (None, record.name)]
    return named[0][1] if len(named) == 1 and len(named[0]) == 2 and named[0][1] > 1 else None


def chooses_class(network: Network) -> bool:
    """Return whether the largest score of a row is its class: softmax, or no head that is known."""
    count = class_count(network)
    is_softmax = network.facts.get("activation", "softmax") == "softmax"
    return count is not None and count > 1 and is_softmax and not network.answers_tokens


def class_indices(
    labels: Sequence[str], network: Network, dataset: str, output: str | None = None
) -> Array:
    """Return the index of each label's score in an output: by class name, or by number.

    Raises InputRefused for any other label.
    """
    names = {name: index for index, name in enumerate(network.labels or ())}
    count = class_count(network, output)
    if count is None or count < 2:
        named = [record for record in network.outputs if output in (None, record.name)]
        listed = ", ".join(f"{record.name} {list(record.shape)}" for record in named)
        raise InputRefused(
            f"the network gives {listed}, which are no scores of classes [batch, classes]; choose "
            "another metric."
        )
    known = names | {str(index): index for index in range(count) if str(index) not in names}
    unknown = sorted(set(labels) - set(known))
    if unknown:
        allowed = ", ".join(names) if names else f"0 to {count - 1}"
        raise InputRefused(
            f"dataset {dataset} has {len(unknown)} labels that are no class of the model, such as "
            f"{unknown[0]!r}; allowed: {allowed}."
        )
    numbers: Array = np.array([known[label] for label in labels], dtype=np.int64)
    return numbers


def observed_outputs(
    records: Sequence[TensorRecord], network: OrtNetwork, feeds: Sequence[Feed]
) -> tuple[TensorRecord, ...]:
    """Return records with the size of each axis, but the batch, that is the same for every feed.

    The feeds differ in every size that may differ when the network is served.
    """
    names = [record.name for record in records]
    outputs = [network.values(names, feed) for feed in feeds]
    result = []
    for record in records:
        sizes = map(set, zip(*(values[record.name].shape for values in outputs), strict=True))
        shape = tuple(
            min(seen) if axis > 0 and len(seen) == 1 else -1 for axis, seen in enumerate(sizes)
        )
        result.append(record.model_copy(update={"shape": shape}))
    return tuple(result)


RECORD_NAME = "network.json"
NETWORK = "model.onnx"
TOKENIZER = "tokenizer.json"
RECORDED = ("inputs", "outputs", "labels", "prompts", "image_processor", "facts")
"""What a network and its record have alike."""


class StoredFile(Value):
    """A file under a name that holds its digest, so that two builds at once cannot mix theirs."""

    name: str
    sha256: str


class NetworkRecord(Value):
    """The facts of a network; written after its files, so a network exists only once this does."""

    network_precision: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    labels: tuple[str, ...] | None = None
    prompts: Prompts | None = None
    image_processor: ImageProcessor | None = Field(
        None, exclude_if=lambda processor: processor is None
    )
    files: dict[str, StoredFile]
    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network on this machine's disk."""

    precision: str
    path: Path
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    facts: dict[str, Any]
    tokenizer: Path | None = None
    """Of the float network of a text task."""
    labels: tuple[str, ...] | None = None
    """Class names of a classifier, in the order of its logits."""
    prompts: Prompts | None = None
    """Of the float network of an embedder."""
    image_processor: ImageProcessor | None = None
    """Of the float network of an image classifier."""
    full: tuple[str, ...] = ()
    """Nodes that stay FP32 in the network in FP16; set by the half precision step."""

    @property
    def answers_tokens(self) -> bool:
        """True when each token of a text has an answer: logits [batch, sequence, labels]."""
        return (
            self.tokenizer is not None
            and self.labels is not None
            and len(self.outputs[0].shape) == 3
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in the network's order."""
        return tuple(record.name for record in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in the network's order."""
        return tuple(record.name for record in self.outputs)


class Networks:
    """The networks of one build; `stores` are read in order, the first is the work folder's."""

    def __init__(self, stores: tuple[Store, ...], folder: Path, log: Log) -> None:
        self._stores = stores
        self._folder = folder
        self._log = log

    def find(self, precision: str, key: str) -> Network | None:
        """Return a finished network, copied here and checked; None when no store has it whole."""
        folder = self._folder / key
        for store in self._stores:
            record = self._record(store, key)
            if record is not None and self._copy(store, key, record):
                self._log.line(f"  {precision} network {key} is reused from {store.place}")
                return Network(
                    precision=precision,
                    path=folder / NETWORK,
                    tokenizer=folder / TOKENIZER if TOKENIZER in record.files else None,
                    **{name: getattr(record, name) for name in RECORDED},
                )
        return None

    def keep(self, key: str, network: Network) -> Network:
        """Put a new network into the work folder's store, its record last."""
        files = {}
        paths = {
            NETWORK: network.path,
            DATA_NAME: data_file(network.path),
            TOKENIZER: network.tokenizer,
        }
        for name, path in paths.items():
            if path is not None:
                digest = sha256_of(path)
                files[name] = StoredFile(name=f"{digest[:16]}-{name}", sha256=digest)
                self._stores[0].upload(path, network_path(key, files[name].name))
        record = NetworkRecord(
            network_precision=network.precision,
            files=files,
            **{name: getattr(network, name) for name in RECORDED},
        )
        text = json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
        path = self._path(key, RECORD_NAME)
        path.write_text(text, encoding="utf-8")
        self._stores[0].upload(path, network_path(key, RECORD_NAME))
        return network

    def names(self, key: str) -> tuple[str, ...]:
        """Return every object of a network of the work folder, its record last."""
        record = self._record(self._stores[0], key)
        if record is None:
            return ()
        names = [*(file.name for file in record.files.values()), RECORD_NAME]
        return tuple(network_path(key, name) for name in names)

    def _record(self, store: Store, key: str) -> NetworkRecord | None:
        path = network_path(key, RECORD_NAME)
        data = store.read(path)
        if data is None:
            return None
        try:
            return NetworkRecord.model_validate_json(data)
        except ValidationError:
            self._log.line(f"  {path} in {store.place} cannot be read; the network is made anew")
            return None

    def _copy(self, store: Store, key: str, record: NetworkRecord) -> bool:
        """Copy a network here and into the work folder's store; False when it is not whole."""
        copies = {}
        for name, file in record.files.items():
            source, path = network_path(key, file.name), self._path(key, name)
            if not store.download(source, path) or sha256_of(path) != file.sha256:
                lost = f"{source} in {store.place}"
                self._log.line(f"  {lost} is missing or damaged; the network is made anew")
                return False
            copies[source] = path
        if store is not self._stores[0]:
            copies[network_path(key, RECORD_NAME)] = self._path(key, RECORD_NAME)
            store.download(network_path(key, RECORD_NAME), self._path(key, RECORD_NAME))
            for name, path in copies.items():
                self._stores[0].upload(path, name)
        return True

    def _path(self, key: str, name: str) -> Path:
        folder = self._folder / key
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

"""Networks: their records and files in a store, their classes, and the shapes that they answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.ort import OrtNetwork
from engine_build.store import Store, sha256_of
from onboarding.manifest import TensorRecord
from onboarding.names import network_path
from onboarding.values import Value


def class_count(network: Network) -> int | None:
    """Classes that a network's scores stand for; None when its output is no [batch, classes]."""
    if network.labels is not None:
        return len(network.labels)
    shapes = [record.shape for record in network.outputs]
    return shapes[0][1] if len(shapes) == 1 and len(shapes[0]) == 2 and shapes[0][1] > 1 else None


def class_indices(labels: Sequence[str], network: Network, dataset: str) -> Array:
    """The place of each label's score in the output: by class name, or by number.

    Raises InputRefused for any other label.
    """
    names = (
        {} if network.labels is None else {name: index for index, name in enumerate(network.labels)}
    )
    count = class_count(network)
    if count is None:
        listed = ", ".join(f"{record.name} {list(record.shape)}" for record in network.outputs)
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
    """The records, each axis but the batch with its size where that is the same for every feed.

    The feeds differ in every size that may differ when the network is served.
    """
    names = [record.name for record in records]
    seen = [network.values(names, feed) for feed in feeds]
    return tuple(
        _record(record, [values[record.name].shape for values in seen]) for record in records
    )


def _record(record: TensorRecord, shapes: Sequence[tuple[int, ...]]) -> TensorRecord:
    sizes = [set(item) for item in zip(*shapes, strict=True)]
    shape = tuple(
        min(seen) if axis > 0 and len(seen) == 1 else -1 for axis, seen in enumerate(sizes)
    )
    return TensorRecord(name=record.name, datatype=record.datatype, shape=shape)


RECORD_NAME = "network.json"
NETWORK = "model.onnx"
TOKENIZER = "tokenizer.json"


class StoredFile(Value):
    """One file of a network, stored under a name that holds its digest.

    Two builds at once cannot mix theirs.
    """

    name: str
    sha256: str


class NetworkRecord(Value):
    """What a network is; written after its files, so a network exists only once this does."""

    network_precision: str
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    labels: tuple[str, ...] | None = None
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

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs, in the network's order."""
        return tuple(record.name for record in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs, in the network's order."""
        return tuple(record.name for record in self.outputs)


class Networks:
    """The networks of one build.

    `stores` are asked in order, the first being the work folder's own.
    """

    def __init__(self, stores: tuple[Store, ...], folder: Path, log: Log) -> None:
        self._stores = stores
        self._folder = folder
        self._log = log

    def find(self, precision: str, key: str) -> Network | None:
        """A finished network, copied here and checked; None when no store has it whole."""
        for store in self._stores:
            data = store.read(network_path(key, RECORD_NAME))
            record = None if data is None else self._record(data, store, key)
            if record is not None and self._fetch(store, key, record):
                self._log.line(f"  {precision} network {key} is reused from {store.place}")
                return self._network(precision, key, record)
        return None

    def keep(self, key: str, network: Network) -> Network:
        """Puts a new network into the work folder's store, its record last."""
        files = {NETWORK: network.path} | (
            {} if network.tokenizer is None else {TOKENIZER: network.tokenizer}
        )
        stored = {}
        for name, path in files.items():
            digest = sha256_of(path)
            stored[name] = StoredFile(name=f"{digest[:16]}-{name}", sha256=digest)
            self._stores[0].upload(path, network_path(key, stored[name].name))
        record = NetworkRecord(
            network_precision=network.precision,
            inputs=network.inputs,
            outputs=network.outputs,
            labels=network.labels,
            files=stored,
            facts=network.facts,
        )
        path = self._place(key) / RECORD_NAME
        path.write_text(
            json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n",
            encoding="utf-8",
        )
        self._stores[0].upload(path, network_path(key, RECORD_NAME))
        return network

    def names(self, key: str) -> tuple[str, ...]:
        """Every object of a network of the work folder, its record last."""
        data = self._stores[0].read(network_path(key, RECORD_NAME))
        record = None if data is None else self._record(data, self._stores[0], key)
        files = [] if record is None else [file.name for file in record.files.values()]
        return tuple(network_path(key, name) for name in [*files, RECORD_NAME]) if files else ()

    def _record(self, data: bytes, store: Store, key: str) -> NetworkRecord | None:
        try:
            return NetworkRecord.model_validate_json(data)
        except ValidationError:
            self._log.line(
                f"  {network_path(key, RECORD_NAME)} in {store.place} cannot be read; the network "
                "is made anew"
            )
            return None

    def _fetch(self, store: Store, key: str, record: NetworkRecord) -> bool:
        for name, file in record.files.items():
            path = self._place(key) / name
            if (
                not store.download(network_path(key, file.name), path)
                or sha256_of(path) != file.sha256
            ):
                lost = f"{network_path(key, file.name)} in {store.place}"
                self._log.line(f"  {lost} is missing or damaged; the network is made anew")
                return False
            if store is not self._stores[0]:
                self._stores[0].upload(path, network_path(key, file.name))
        if store is not self._stores[0]:
            record_path = self._place(key) / RECORD_NAME
            store.download(network_path(key, RECORD_NAME), record_path)
            self._stores[0].upload(record_path, network_path(key, RECORD_NAME))
        return True

    def _network(self, precision: str, key: str, record: NetworkRecord) -> Network:
        folder = self._place(key)
        return Network(
            precision=precision,
            path=folder / NETWORK,
            inputs=record.inputs,
            outputs=record.outputs,
            labels=record.labels,
            facts=record.facts,
            tokenizer=folder / TOKENIZER if TOKENIZER in record.files else None,
        )

    def _place(self, key: str) -> Path:
        folder = self._folder / key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

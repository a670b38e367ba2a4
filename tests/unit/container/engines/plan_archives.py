"""Archives of recorded plans, what a GPU machine with stand-in bindings opens of them.

What its engines should answer.
"""

from __future__ import annotations

import numpy as np

from container.archive import EngineArchive
from container.server.engines.loading import load_engine
from container.server.engines.tokens import Tokens
from onboarding.manifest import PlanRecord, ProfileRecord, RuntimeIdentity, TensorRecord
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt import RecordedTensorRT, answers, written
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, write_manifest

RUNTIME = RuntimeIdentity(name="tensorrt", version="10.16.1.11")
SMALL = ((1, 2, 4), (4, 8, 16))
LONG = ((1, 1, 2), (16, 24, 32))


class GpuMachine:
    """Recorded CUDA and TensorRT, and what the engines said."""

    def __init__(self, **cuda):
        self.cuda = RecordedCuda(**cuda)
        self.trt = RecordedTensorRT(self.cuda)
        self.listed: list[str] = []

    @property
    def plan(self):
        """The first plan that was loaded."""
        return self.trt.engines[0]

    def open(self, archive, *, slots=1):
        """The engine of an archive."""
        return load_engine(
            archive,
            slots=slots,
            threads=None,
            cores=8,
            warn=self.listed.append,
            installed=self.installed,
        )

    def installed(self):
        """Its bindings."""
        return self.trt, self.cuda

    def is_empty(self):
        """Whether everything was given back."""
        return (self.cuda.blocks, self.cuda.host, self.cuda.graphs, self.cuda.queues) == (
            {},
            {},
            {},
            {},
        )


def texts(*lengths, typed=False, seed=0):
    """Rows of these lengths."""
    chance = np.random.default_rng(seed)
    rows = [chance.integers(1, 50, length).astype(np.int32) for length in lengths]
    return [Tokens(ids, (ids % 2).astype(np.int32) if typed else None) for ids in rows]


def expected(rows):
    """What the plan answers for each row alone, without padding."""
    found = []
    for row in rows:
        types = np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids
        feed = {
            "input_ids": row.ids,
            "token_type_ids": types,
            "attention_mask": np.ones(len(row), np.int64),
        }
        found.append(
            answers("text", {name: values[None] for name, values in feed.items()})["embedding"][0]
        )
    return np.stack(found).astype(np.float32)


def answered(engine, rows, slot=0):
    """What the engine answers."""
    return engine.run(engine.prepare(rows), slot)[0]


def plan_record(*flags, tensorrt="10.16.1.11"):
    """What the build read back."""
    return PlanRecord(
        tensorrt=tensorrt,
        layers=3,
        int8_layers=0,
        command=" ".join(("trtexec", "--onnx=network.onnx", *flags)),
    )


def text_archive(root, plan, /, *profiles, max_batch_size=32, **changes):
    """A text plan as it is published; profiles are ((batch), (sequence))."""
    records = tuple(ProfileRecord(batch=batch, sequence=sequence) for batch, sequence in profiles)
    return _archive(
        root,
        plan,
        EMBEDDER,
        optimization_profiles=records,
        max_batch_size=max_batch_size,
        **changes,
    )


def tensor_archive(root, plan, /, batch, *, sequence=None, width=3, **changes):
    """A plan of tensors: x and gain, scaled and count."""
    inputs = (
        TensorRecord(name="x", datatype="FP32", shape=(-1, -1 if sequence else width)),
        _gain("gain"),
    )
    outputs = (TensorRecord(name="scaled", datatype="FP32", shape=inputs[0].shape), _gain("count"))
    profiles = (ProfileRecord(batch=batch, sequence=sequence),)
    sizes = {
        "inputs": inputs,
        "outputs": outputs,
        "optimization_profiles": profiles,
        "max_batch_size": batch[2],
    }
    return _archive(root, plan, ARITHMETIC, **sizes, **changes)


def _gain(name):
    return TensorRecord(name=name, datatype="INT64", shape=(-1, 1))


def _archive(root, plan, tiny, /, **changes):
    written(root / "model.plan", plan)
    if tiny.served.is_text:
        (root / "tokenizer.json").write_text("{}")
        changes["tokenizer_file"] = "tokenizer.json"
    fields = {
        "engine_file": "model.plan",
        "runtime": RUNTIME,
        "compute_capability": "9.0",
        "plan": plan_record(),
    } | changes
    return EngineArchive(root=root, manifest=write_manifest(root, tiny, **fields))

"""Archives of recorded plans, a machine with stand-in bindings, and what its engines answer."""

from __future__ import annotations

import numpy as np

from container.archive import EngineArchive
from container.server.engines.loading import load_engine
from container.server.engines.tokens import Tokens
from onboarding.manifest import PlanRecord, ProfileRecord, RuntimeIdentity, TensorRecord
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.fixtures.recorded_gpu.tensorrt import RecordedTensorRT, answers, embedder, write_plan
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, write_manifest

RUNTIME = RuntimeIdentity(name="tensorrt", version="10.16.1.11")
SMALL = ((1, 2, 4), (4, 8, 16))
LONG = ((1, 1, 2), (16, 24, 32))


class GpuMachine:
    """Recorded CUDA and TensorRT, and the engines' warnings."""

    def __init__(self, **cuda):
        self.cuda = RecordedCuda(**cuda)
        self.trt = RecordedTensorRT(self.cuda)
        self.warnings: list[str] = []

    @property
    def plan(self):
        """The first plan that was loaded."""
        return self.trt.engines[0]

    def open(self, archive, *, slots=1):
        return load_engine(
            archive,
            slots=slots,
            threads=None,
            cores=8,
            warn=self.warnings.append,
            installed=self.installed,
        )

    def open_text(self, root, *profiles, slots=1, archive=None, **plan):
        """The engine of a text plan."""
        archive = archive or {}
        return self.open(
            text_archive(root, embedder(profiles, **plan), *profiles, **archive), slots=slots
        )

    def installed(self):
        return self.trt, self.cuda

    def is_empty(self):
        """Whether everything was given back."""
        cuda = self.cuda
        return not (cuda.blocks or cuda.host or cuda.graphs or cuda.queues)


def texts(*lengths, typed=False, seed=0):
    """Rows of these lengths."""
    chance = np.random.default_rng(seed)
    rows = [chance.integers(1, 50, length).astype(np.int32) for length in lengths]
    return [Tokens(ids, (ids % 2).astype(np.int32) if typed else None) for ids in rows]


def expected(rows):
    """The plan's answers for each row alone, without padding."""
    vectors = []
    for row in rows:
        types = np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids
        mask = np.ones(len(row), np.int64)
        feed = {"input_ids": row.ids, "token_type_ids": types, "attention_mask": mask}
        outputs = answers("text", {name: values[None] for name, values in feed.items()})
        vectors.append(outputs["embedding"][0])
    return np.stack(vectors).astype(np.float32)


def run_rows(engine, rows, slot=0):
    return engine.run(engine.prepare(rows), slot)[0]


def plan_record(*flags, tensorrt="10.16.1.11"):
    """The plan as the build inspected it."""
    command = " ".join(("trtexec", "--onnx=network.onnx", *flags))
    return PlanRecord(tensorrt=tensorrt, layers=3, int8_layers=0, command=command)


def text_archive(root, plan, /, *profiles, **changes):
    """A text plan as it is published; profiles are ((batch), (sequence))."""
    records = tuple(ProfileRecord(batch=batch, sequence=sequence) for batch, sequence in profiles)
    sizes = {"optimization_profiles": records, "max_batch_size": 32}
    return _archive(root, plan, EMBEDDER, **sizes | changes)


def tensor_archive(root, plan, /, batch, *, sequence=None, width=3):
    """A plan of tensors: x and gain, scaled and count."""
    shape = (-1, -1 if sequence else width)
    return _archive(
        root,
        plan,
        ARITHMETIC,
        inputs=(TensorRecord(name="x", datatype="FP32", shape=shape), _gain("gain")),
        outputs=(TensorRecord(name="scaled", datatype="FP32", shape=shape), _gain("count")),
        optimization_profiles=(ProfileRecord(batch=batch, sequence=sequence),),
        max_batch_size=batch[2],
    )


def _gain(name):
    return TensorRecord(name=name, datatype="INT64", shape=(-1, 1))


def _archive(root, plan, tiny, /, **changes):
    write_plan(root / "model.plan", plan)
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

"""What the steps of a build have made so far, and the records that they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from engine_build.datasets.dataset import Array, Encoder
from engine_build.evaluation.decision import Candidate, Evaluation, Findings
from engine_build.onnx_graph.network_store import Network, Networks
from engine_build.packaging.reused_plan import ReusedPlan
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext
from engine_build.store import Store
from onboarding.lock import LockEntry
from onboarding.manifest import AccuracyRecord, BenchmarkRecord, CompileCheckRecord
from onboarding.values import Precision, Value

if TYPE_CHECKING:
    from engine_build.packaging.ensemble import Ensemble
    from engine_build.sources.source_model import ImageModel, SourceModel
    from onboarding.triton_repository import Repository


class BuildState:
    """What the steps of one build have made so far.

    A step sets its own attributes and reads those of earlier steps; one that was never set is a
    fault of the order of steps.
    """

    encoder: Encoder
    """Of the float network; set by export."""
    reference: Array | None = None
    """The source model's answers to the validation samples; by fetch where kept, or reference."""
    source: Path | None = None
    """A checkpoint's folder or an ONNX file; None where network and reference were kept."""
    reference_source: Path | None = None
    """The file of accuracy.reference; None where there is none, or where answers were kept."""
    model: SourceModel | ImageModel | None = None
    """The source model in PyTorch; None for ONNX sources and kept networks."""
    refused: dict[Precision, str]
    """Why `auto` does not try a precision whose engine cannot be made."""
    half_networks: dict[Precision, Network]
    """What a GPU's fp16 and explicit int8 engines are compiled from, by their precision."""
    checks: tuple[CompileCheckRecord, ...] = ()
    placement: Mapping[Precision, str]
    """Which layers of a candidate of eight bits went back to float; set by placement."""
    candidates: tuple[Candidate, ...]
    """Set by compile; verify leaves those that may be timed, the baseline first."""
    findings: Findings
    network_records: tuple[AccuracyRecord, ...]
    """Of the Q/DQ networks themselves; both set by verify."""
    evaluation: Evaluation
    """Set by benchmark; never where a plan is reused."""
    reused: ReusedPlan | None = None
    """The plan of an engine of before, with all that was measured of it."""
    entry: LockEntry
    ensemble: Ensemble
    """Of an ensemble's build, whose `networks` are the models' float ones by their names."""
    repository: Repository
    """A user's own; set by fetch, with its folder in `source`."""
    accuracy: AccuracyRecord
    benchmark: tuple[BenchmarkRecord, ...]

    def __init__(self, context: BuildContext) -> None:
        self._is_auto = context.request.model.engine.precision == "auto"
        folder = context.work.scratch("networks")
        self.network_store = Networks(context.stores, folder, context.log)
        self.networks: dict[str, Network] = {}
        """By precision: float, and int8 where there is one."""
        self.refused = {}
        self.placement = {}
        self.half_networks = {}

    @property
    def may_leave_out(self) -> bool:
        """True where `engine.precision` is auto, and the source leaves it a choice."""
        return self._is_auto and given_precision(self.networks) is None


RecordT = TypeVar("RecordT", bound=Value)


def find_record(stores: Sequence[Store], name: str, kind: type[RecordT]) -> RecordT | None:
    """Return the record of that name from the first store that has it whole."""
    for store in stores:
        try:
            return kind.model_validate_json(store.read(name) or b"")
        except ValidationError:
            continue
    return None


def keep_record(context: BuildContext, name: str, record: Value) -> None:
    """Write a record into the work folder's store."""
    file = context.work.scratch("record") / "record.json"
    file.write_text(record.model_dump_json(), encoding="utf-8")
    context.work.store.upload(file, name)

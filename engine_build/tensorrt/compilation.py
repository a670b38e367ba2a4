"""One plan of one precision: its network typed, trtexec run, the plan read back. A finished one is
found again after a kill.

What each precision is compiled from:
    fp32   the float network, strongly typed, without TF32
    fp16   the float network in FP16, strongly typed
    int8   the Q/DQ network with its float part in FP16, strongly typed; or, with a calibration
    cache, the float network as it is
    bf16   the float network as it is, where trtexec chooses: in dialect 10 only, since nothing here
    could prove a typed one
    fp8    refused: nothing here calibrates an FP8 network
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from engine_build.context import BuildContext
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.calibration_cache import cache_path
from engine_build.runner import Command, Ended
from engine_build.store import sha256_of
from engine_build.tensorrt.half_precision import write_half_precision
from engine_build.tensorrt.plan import Asked, ReadBack, read_back, said
from engine_build.tensorrt.timing_cache import TimingCache
from engine_build.tensorrt.trtexec import PROGRAM, Dialect, Profile, Request, compilation, profile
from onboarding.keys import RECIPE_VERSION
from onboarding.manifest import PlanRecord
from onboarding.values import Precision, Value

PLANS = "plans"
PLAN, NETWORK, RECORD = "model.plan", "network.onnx", "plan.json"


class FinishedPlan(Value):
    """What lies beside a finished plan; written last, so a plan is finished only once this is
    there.
    """

    sha256: str
    record: PlanRecord


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """One plan to be made of `network`, the float or the Q/DQ one."""

    context: BuildContext
    precision: Precision
    network: Network
    gpu: str
    tensorrt: str
    """The exact build of this machine's trtexec; the platform's may lack its last number."""

    def finished(self) -> tuple[Path, PlanRecord]:
        """The plan and what it is, made or found. Raises InputRefused and NetworkRefused."""
        found = self._found()
        if found is not None:
            self.context.log.line(f"  {self.precision}: the plan of an earlier run is reused")
            return found
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lay_network()
        cache = TimingCache(
            self.context.stores,
            self.tensorrt,
            self.gpu,
            self.folder.parent / "timing.cache",
            self.context.log,
        )
        self._compile(cache)
        told = read_back(self.plan, self.asked, self.dialect, self.context.runner)
        cache.keep()
        return self.plan, self._recorded(told, cache)

    @property
    def dialect(self) -> Dialect:
        """Of the platform's trtexec. Raises InputRefused."""
        platform = self.context.request.platform
        if platform.trtexec_dialect is None:
            raise InputRefused(
                f"platform {platform.name} has no TensorRT; choose another in the environment file."
            )
        return platform.trtexec_dialect

    @property
    def by_cache(self) -> bool:
        """True when INT8 ranges come from a calibration cache."""
        return self.precision == "int8" and self.context.request.quantization == "calibration-cache"

    @property
    def is_half(self) -> bool:
        """True when a network with FP16 in it is written first."""
        return self.precision in ("fp16", "int8") and not self.by_cache

    @property
    def plan(self) -> Path:
        """Where the plan lies, or will."""
        return self.folder / PLAN

    @cached_property
    def folder(self) -> Path:
        """The plan's own: named by everything that decides the plan."""
        digests = (sha256_of(self.network.path), *self._cache_digest())
        decides = (RECIPE_VERSION, self.neutral, self.tensorrt, self.gpu, *digests)
        key = hashlib.sha256("\n".join(map(str, decides)).encode()).hexdigest()[:12]
        return self.context.work.path / PLANS / f"{self.precision}-{key}"

    @property
    def neutral(self) -> Command:
        """The command with bare file names: the same on every machine."""
        request = self.request(Path())
        cache = request.calibration_cache
        bare = dataclasses.replace(
            request, calibration_cache=None if cache is None else Path(cache.name)
        )
        return compilation(bare, self.dialect)

    @property
    def asked(self) -> Asked:
        """What the plan must be."""
        first = self.profiles[0] if self.profiles else ()
        return Asked(
            precision=self.precision,
            tensorrt=self.tensorrt,
            inputs=self.network.inputs,
            outputs=self.network.outputs,
            profiles=len(self.profiles),
            opt_shapes=tuple((each.name, each.opt) for each in first),
            version_compatible=self.context.request.model.engine.version_compatible,
        )

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The ranges of each profile; none for a network without dynamic axes."""
        specs = self.context.request.model.engine.optimization_profiles
        return tuple(ranges for spec in specs if (ranges := profile(self.network.inputs, spec)))

    def request(self, folder: Path) -> Request:
        """The request, its files in a folder."""
        wish = self.context.request.model.engine
        return Request(
            network=folder / NETWORK,
            plan=folder / PLAN,
            precision=self.precision,
            profiles=self.profiles,
            strongly_typed=not self.by_cache and self.precision != "bf16",
            calibration_cache=self._calibration_cache() if self.by_cache else None,
            timing_cache=folder.parent / "timing.cache",
            optimization_level=wish.optimization_level,
            workspace_mib=wish.workspace_mib,
            hardware_compatibility=wish.hardware_compatibility,
            version_compatible=wish.version_compatible,
        )

    def _lay_network(self) -> None:
        """Beside the plan, where the script that repeats the build still finds it."""
        if self.is_half:
            write_half_precision(self.network.path, self.folder / NETWORK)
        else:
            shutil.copyfile(self.network.path, self.folder / NETWORK)

    def _compile(self, cache: TimingCache) -> None:
        command = compilation(self.request(self.folder), self.dialect)
        had_cache = cache.bring() or cache.path.is_file()
        ended = self._run(command)
        if had_cache and not self._is_made(ended):
            self.context.log.line("  the timing cache may be damaged: once more without it")
            cache.drop()
            ended = self._run(command)
        if not self._is_made(ended):
            raise NetworkRefused(
                f"{PROGRAM} {ended.how} and gave no {self.precision} plan: {said(ended)}; the log has its words."
            )

    def _run(self, command: Command) -> Ended:
        self.plan.unlink(missing_ok=True)
        return self.context.runner.run(command)

    def _is_made(self, ended: Ended) -> bool:
        return ended.code == 0 and self.plan.is_file() and self.plan.stat().st_size > 0

    def _recorded(self, told: ReadBack, cache: TimingCache) -> PlanRecord:
        layers = told.inspection
        record = PlanRecord(
            tensorrt=told.tensorrt,
            layers=layers.layers,
            int8_layers=layers.int8_layers,
            command=str(self.neutral),
            timing_cache_sha256=cache.sha256,
        )
        finished = FinishedPlan(sha256=sha256_of(self.plan), record=record)
        (self.folder / RECORD).write_text(
            json.dumps(finished.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8"
        )
        ran = f"by {PROGRAM} at {self.context.request.opt_shape} without a CUDA graph"
        speed = "" if told.median_ms is None else f", {told.median_ms:.3f} ms {ran}"
        size = self.plan.stat().st_size / 1e6
        counts = f"{layers.layers} layers, {layers.int8_layers} of them in INT8"
        self.context.log.line(
            f"  {self.precision}: {size:.1f} MB of TensorRT {told.tensorrt}, {counts}{speed}"
        )
        return record

    def _found(self) -> tuple[Path, PlanRecord] | None:
        try:
            finished = FinishedPlan.model_validate_json((self.folder / RECORD).read_bytes())
        except (OSError, ValidationError):
            return None
        whole = self.plan.is_file() and sha256_of(self.plan) == finished.sha256
        return (self.plan, finished.record) if whole else None

    def _cache_digest(self) -> tuple[str, ...]:
        return (sha256_of(self._calibration_cache()),) if self.by_cache else ()

    def _calibration_cache(self) -> Path:
        path = self.context.kept.path(cache_path(self.context.request))
        if not path.is_file():
            raise InputRefused(
                f"there is no calibration cache {path} to compile int8 with; run the build's steps in their order."
            )
        return path

"""Compiles one plan of one precision with trtexec, or finds the finished plan of an earlier run.

fp32   the float network, strongly typed, without TF32
fp16   the float network in FP16, strongly typed
int8   the Q/DQ network with its float part in FP16, strongly typed; or, with a calibration cache,
       the float network as it is
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
from engine_build.tensorrt.plan import ExpectedPlan, InspectedPlan, inspect_plan, last_error
from engine_build.tensorrt.timing_cache import TimingCache
from engine_build.tensorrt.trtexec import (
    PROGRAM,
    CompileOptions,
    Dialect,
    Profile,
    compile_command,
    profile_ranges,
)
from onboarding.keys import RECIPE_VERSION
from onboarding.manifest import PlanRecord
from onboarding.values import Precision, Value

PLANS = "plans"
PLAN, NETWORK, RECORD = "model.plan", "network.onnx", "plan.json"


class FinishedPlan(Value):
    """The record beside a plan, written last: without it a plan is not finished."""

    sha256: str
    record: PlanRecord


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """One plan to compile of `network`, the float or the Q/DQ one."""

    context: BuildContext
    precision: Precision
    network: Network
    gpu: str
    tensorrt: str
    """The exact build of this machine's trtexec; the platform's may lack its last number."""

    def compile(self) -> tuple[Path, PlanRecord]:
        """Return the plan and its record. Raises InputRefused and NetworkRefused."""
        known = self._known_plan()
        if known is not None:
            self.context.log.line(f"  {self.precision}: the plan of an earlier run is reused")
            return known
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._is_half:
            write_half_precision(self.network.path, self.folder / NETWORK)
        else:
            shutil.copyfile(self.network.path, self.folder / NETWORK)
        timing_path = self.folder.parent / "timing.cache"
        cache = TimingCache(
            self.context.stores, self.tensorrt, self.gpu, timing_path, self.context.log
        )
        self._run_trtexec(cache)
        plan = inspect_plan(self.plan, self.expected, self.dialect, self.context.runner)
        cache.upload()
        return self.plan, self._write_record(plan, cache)

    @property
    def dialect(self) -> Dialect:
        """The platform's trtexec dialect. Raises InputRefused."""
        platform = self.context.request.platform
        if platform.trtexec_dialect is None:
            raise InputRefused(
                f"platform {platform.name} has no TensorRT; choose another in the environment file."
            )
        return platform.trtexec_dialect

    @property
    def plan(self) -> Path:
        """The plan's path."""
        return self.folder / PLAN

    @cached_property
    def folder(self) -> Path:
        """The plan's own folder, named by everything that decides the plan."""
        digests = [sha256_of(self.network.path)]
        if self._uses_calibration_cache:
            digests.append(sha256_of(self._calibration_cache()))
        decides = (RECIPE_VERSION, self.neutral_command, self.tensorrt, self.gpu, *digests)
        key = hashlib.sha256("\n".join(map(str, decides)).encode()).hexdigest()[:12]
        return self.context.work.path / PLANS / f"{self.precision}-{key}"

    @property
    def neutral_command(self) -> Command:
        """The command with bare file names: the same on every machine."""
        options = self.options(Path())
        cache = options.calibration_cache
        name = None if cache is None else Path(cache.name)
        return compile_command(dataclasses.replace(options, calibration_cache=name), self.dialect)

    @property
    def expected(self) -> ExpectedPlan:
        """What the plan must be."""
        first = self.profiles[0] if self.profiles else ()
        return ExpectedPlan(
            precision=self.precision,
            tensorrt=self.tensorrt,
            inputs=self.network.inputs,
            outputs=self.network.outputs,
            profiles=len(self.profiles),
            opt_shapes=tuple((limits.name, limits.opt) for limits in first),
            version_compatible=self.context.request.model.engine.version_compatible,
        )

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The ranges of each profile; none for a network without dynamic axes."""
        specs = self.context.request.model.engine.optimization_profiles
        profiles = (profile_ranges(self.network.inputs, spec) for spec in specs)
        return tuple(ranges for ranges in profiles if ranges)

    def options(self, folder: Path) -> CompileOptions:
        """Return the options, their files in a folder."""
        engine, by_cache = self.context.request.model.engine, self._uses_calibration_cache
        return CompileOptions(
            network=folder / NETWORK,
            plan=folder / PLAN,
            precision=self.precision,
            profiles=self.profiles,
            strongly_typed=not by_cache and self.precision != "bf16",
            calibration_cache=self._calibration_cache() if by_cache else None,
            timing_cache=folder.parent / "timing.cache",
            optimization_level=engine.optimization_level,
            workspace_mib=engine.workspace_mib,
            hardware_compatibility=engine.hardware_compatibility,
            version_compatible=engine.version_compatible,
        )

    @property
    def _uses_calibration_cache(self) -> bool:
        return self.precision == "int8" and self.context.request.quantization == "calibration-cache"

    @property
    def _is_half(self) -> bool:
        """True when a network with FP16 in it is written first."""
        return self.precision in ("fp16", "int8") and not self._uses_calibration_cache

    def _run_trtexec(self, cache: TimingCache) -> None:
        command = compile_command(self.options(self.folder), self.dialect)
        had_cache = cache.fetch() or cache.path.is_file()
        ended = self._run(command)
        if had_cache and not self._has_plan(ended):
            self.context.log.line("  the timing cache may be damaged: once more without it")
            cache.discard()
            ended = self._run(command)
        if not self._has_plan(ended):
            raise NetworkRefused(
                f"{PROGRAM} {ended.how} and gave no {self.precision} plan: {last_error(ended)}; "
                "the log has its output."
            )

    def _run(self, command: Command) -> Ended:
        self.plan.unlink(missing_ok=True)
        return self.context.runner.run(command)

    def _has_plan(self, ended: Ended) -> bool:
        return ended.code == 0 and self.plan.is_file() and self.plan.stat().st_size > 0

    def _write_record(self, plan: InspectedPlan, cache: TimingCache) -> PlanRecord:
        layers = plan.inspection
        record = PlanRecord(
            tensorrt=plan.tensorrt,
            layers=layers.layers,
            int8_layers=layers.int8_layers,
            command=str(self.neutral_command),
            timing_cache_sha256=cache.sha256,
        )
        finished = FinishedPlan(sha256=sha256_of(self.plan), record=record)
        text = json.dumps(finished.model_dump(mode="json"), indent=2) + "\n"
        (self.folder / RECORD).write_text(text, encoding="utf-8")
        shape = self.context.request.opt_shape
        run = f"by {PROGRAM} at {shape} without a CUDA graph"
        speed = "" if plan.median_ms is None else f", {plan.median_ms:.3f} ms {run}"
        size = self.plan.stat().st_size / 1e6
        counts = f"{layers.layers} layers, {layers.int8_layers} of them in INT8"
        self.context.log.line(
            f"  {self.precision}: {size:.1f} MB of TensorRT {plan.tensorrt}, {counts}{speed}"
        )
        return record

    def _known_plan(self) -> tuple[Path, PlanRecord] | None:
        try:
            finished = FinishedPlan.model_validate_json((self.folder / RECORD).read_bytes())
        except (OSError, ValidationError):
            return None
        is_whole = self.plan.is_file() and sha256_of(self.plan) == finished.sha256
        return (self.plan, finished.record) if is_whole else None

    def _calibration_cache(self) -> Path:
        path = self.context.work_store.path(cache_path(self.context.request))
        if not path.is_file():
            raise InputRefused(
                f"there is no calibration cache {path} to compile int8 with; run the build's steps "
                "in their order."
            )
        return path

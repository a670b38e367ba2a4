"""Compiles one plan of one precision with trtexec, or finds the finished plan of an earlier run.

fp32   the float network, strongly typed, without TF32
fp16   the float network in FP16, strongly typed
int8   the Q/DQ network with its float part in FP16, strongly typed; or, with a calibration cache,
       the float network that was calibrated, whose masks are finite in FP16
fp8    the Q/DQ network with its float part in FP16, strongly typed
bf16   the float network as it is, where trtexec chooses: in dialect 10 only, since nothing here
       could prove a typed one
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from pydantic import ValidationError

from engine_build.errors import InputRefused, NetworkRefused, PublishFailed
from engine_build.log import Log
from engine_build.onnx_graph.external_data import copy_network, network_sha256
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import leave_to_plugins
from engine_build.request import BuildContext
from engine_build.runner import Command, Ended
from engine_build.store import Store, link_or_copy, sha256_of
from engine_build.tensorrt.half_precision import write_half_precision, write_weakly_typed
from engine_build.tensorrt.plan import (
    INSPECTOR_LINE,
    LAYERS,
    ExpectedPlan,
    InspectedPlan,
    inspect_plan,
    last_error,
)
from engine_build.tensorrt.trtexec import (
    PROGRAM,
    CompileOptions,
    Dialect,
    Profile,
    compile_command,
    profile_ranges,
)
from onboarding.keys import RECIPE_VERSION, plugin_operators
from onboarding.manifest import PlanRecord
from onboarding.names import timing_cache_path
from onboarding.values import Precision, Value

PLANS = "plans"
PLAN, NETWORK, RECORD, TIMING_CACHE = "model.plan", "network.onnx", "plan.json", "timing.cache"
SHOWN_BYTES = 64 * 1024
"""Of the inspector's file; CloudWatch takes 256 KiB a line."""


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
        context, folder = self.context, self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for library in context.plugins:
            link_or_copy(library, folder / library.name)
        if (record := self._known_record()) is not None:
            context.log.line(f"  {self.precision}: the plan of an earlier run is reused")
            return self.plan, record
        self._write_network(folder / NETWORK)
        cache_file = folder.parent / TIMING_CACHE
        timing = TimingCache(context.stores, self.tensorrt, self.gpu, cache_file, context.log)
        self._run_trtexec(timing)
        try:
            plan = inspect_plan(self.plan, self._expected(), self.dialect, context.runner)
        finally:
            self._show_inspection()
        timing.upload()
        return self.plan, self._write_record(plan, timing.sha256)

    def compile_cut(self, cut: Path, timeout_seconds: float) -> Path:
        """Return a plan of a part of the network, `network.onnx` in a folder of its own.

        The options and timings are the whole plan's. Raises NetworkRefused.
        """
        folder = cut.parent
        for library in self.context.plugins:
            link_or_copy(library, folder / library.name)
        names = {value.name for value in onnx.load(cut, load_external_data=False).graph.input}
        inputs = tuple(record for record in self.network.inputs if record.name in names)
        part = dataclasses.replace(self, network=dataclasses.replace(self.network, inputs=inputs))
        options = dataclasses.replace(
            part._options(folder), timing_cache=self.folder.parent / TIMING_CACHE
        )
        command = compile_command(options, self.dialect)
        ended = self.context.runner.run(
            dataclasses.replace(command, timeout_seconds=timeout_seconds, shown_lines=0)
        )
        if ended.code != 0 or not options.plan.is_file():
            raise NetworkRefused(f"{PROGRAM} {ended.how}: {last_error(ended)}")
        return options.plan

    def _write_network(self, path: Path) -> None:
        operators = plugin_operators(self.context.request.model)
        if self._uses_calibration_cache:
            write_weakly_typed(self.network.path, path)
        elif self.precision in ("fp16", "int8", "fp8"):
            write_half_precision(self.network.path, path, operators, self.network.full)
        else:
            copy_network(self.network.path, path)
        if operators:
            leave_to_plugins(path, operators)

    @property
    def dialect(self) -> Dialect:
        """The platform's trtexec dialect. Raises InputRefused."""
        platform = self.context.request.platform
        if platform.trtexec_dialect is None:
            raise InputRefused(
                f"platform {platform.name} has no TensorRT; choose another in the environment file."
            )
        return platform.trtexec_dialect

    @cached_property
    def folder(self) -> Path:
        """The plan's own folder, named by everything that decides the plan."""
        digests = [network_sha256(self.network.path), *self.network.full]
        if self._uses_calibration_cache:
            digests.append(sha256_of(self._calibration_cache()))
        digests += [plugin.sha256 for plugin in self.context.request.plugins]
        parts = (RECIPE_VERSION, self._neutral_command(), self.tensorrt, self.gpu, *digests)
        key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
        return self.context.work.path / PLANS / f"{self.precision}-{key}"

    @property
    def plan(self) -> Path:
        """The plan's path."""
        return self.folder / PLAN

    def _neutral_command(self) -> Command:
        """The command with bare file names: the same on every machine."""
        options = self._options(Path())
        if options.calibration_cache is not None:
            name = Path(options.calibration_cache.name)
            options = dataclasses.replace(options, calibration_cache=name)
        return compile_command(options, self.dialect)

    def _options(self, folder: Path) -> CompileOptions:
        engine = self.context.request.model.engine
        return CompileOptions(
            network=folder / NETWORK,
            plan=folder / PLAN,
            precision=self.precision,
            profiles=self._profiles(),
            calibration_cache=self._calibration_cache() if self._uses_calibration_cache else None,
            timing_cache=folder.parent / TIMING_CACHE,
            optimization_level=engine.optimization_level,
            workspace_mib=engine.workspace_mib,
            hardware_compatibility=engine.hardware_compatibility,
            version_compatible=engine.version_compatible,
            is_sparse=engine.sparsity == "enable",
            plugins=self._plugins(folder),
        )

    def _plugins(self, folder: Path) -> tuple[Path, ...]:
        return tuple(folder / library.name for library in self.context.plugins)

    def _profiles(self) -> tuple[Profile, ...]:
        """The ranges of each profile; none for a network without dynamic axes."""
        specs = self.context.request.model.engine.optimization_profiles
        profiles = (profile_ranges(self.network.inputs, spec) for spec in specs)
        return tuple(ranges for ranges in profiles if ranges)

    def _expected(self) -> ExpectedPlan:
        profiles = self._profiles()
        first = profiles[0] if profiles else ()
        return ExpectedPlan(
            precision=self.precision,
            tensorrt=self.tensorrt,
            inputs=self.network.inputs,
            outputs=self.network.outputs,
            profiles=len(profiles),
            opt_shapes=tuple((limits.name, limits.opt) for limits in first),
            version_compatible=self.context.request.model.engine.version_compatible,
            plugins=self._plugins(self.folder),
        )

    @property
    def _uses_calibration_cache(self) -> bool:
        return self.precision == "int8" and self.context.request.quantization == "calibration-cache"

    def _calibration_cache(self) -> Path:
        path = self.context.work.store.path(self.context.request.cache_path)
        if not path.is_file():
            raise InputRefused(
                f"there is no calibration cache {path} to compile int8 with; run the build's steps "
                "in their order."
            )
        return path

    def _run_trtexec(self, timing: TimingCache) -> None:
        command = compile_command(self._options(self.folder), self.dialect)
        had_cache = timing.fetch() or timing.path.is_file()
        ended = self._run(command)
        if had_cache and not self._has_plan(ended):
            self.context.log.line("  the timing cache may be damaged: once more without it")
            timing.path.unlink(missing_ok=True)
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

    def _write_record(self, plan: InspectedPlan, timing_cache_sha256: str | None) -> PlanRecord:
        layers, int8_layers = plan.inspection.layers, plan.inspection.int8_layers
        record = PlanRecord(
            tensorrt=plan.tensorrt,
            layers=layers,
            int8_layers=int8_layers,
            command=str(self._neutral_command()),
            timing_cache_sha256=timing_cache_sha256,
        )
        finished = FinishedPlan(sha256=sha256_of(self.plan), record=record)
        text = json.dumps(finished.model_dump(mode="json"), indent=2) + "\n"
        (self.folder / RECORD).write_text(text, encoding="utf-8")
        run = f"by {PROGRAM} at {self.context.request.opt_shape} without a CUDA graph"
        speed = "" if plan.median_ms is None else f", {plan.median_ms:.3f} ms {run}"
        size = f"{self.plan.stat().st_size / 1e6:.1f} MB of TensorRT {plan.tensorrt}"
        counts = f"{layers} layers, {int8_layers} of them in INT8"
        self.context.log.line(f"  {self.precision}: {size}, {counts}{speed}")
        return record

    def _show_inspection(self) -> None:
        """Print the inspector's account of a small plan whole, one that cannot be read too."""
        path = self.plan.with_name(LAYERS)
        if path.is_file() and path.stat().st_size <= SHOWN_BYTES:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            self.context.log.line(f"{INSPECTOR_LINE}{' '.join(map(str.strip, lines))}")

    def _known_record(self) -> PlanRecord | None:
        try:
            finished = FinishedPlan.model_validate_json((self.folder / RECORD).read_bytes())
        except (OSError, ValidationError):
            return None
        is_whole = self.plan.is_file() and sha256_of(self.plan) == finished.sha256
        return finished.record if is_whole else None


class TimingCache:
    """The timing cache of one TensorRT build on one GPU model: later builds skip measured kernels.

    trtexec reads and writes `path`, the stores keep it, the nearest first. It saves time and never
    decides whether a build succeeds: a damaged one, or a store that does not answer, is left out.
    """

    def __init__(
        self, stores: Sequence[Store], tensorrt: str, gpu: str, path: Path, log: Log
    ) -> None:
        self.path = path
        self._stores = stores
        self._name = timing_cache_path(tensorrt, gpu)
        self._log = log
        self._uploaded: str | None = None

    @property
    def sha256(self) -> str | None:
        """Digest of the file; None when there is none."""
        return sha256_of(self.path) if self.path.is_file() else None

    def fetch(self) -> bool:
        """Copy the nearest store's cache here; return False when no store has one."""
        for store in self._stores:
            try:
                data = store.read(self._name)
            except PublishFailed as error:
                self._log.line(f"  no timing cache: {error}")
                continue
            if data is not None:
                # Never a link to the store's own file, which trtexec would write into.
                self.path.unlink(missing_ok=True)
                self.path.write_bytes(data)
                self._uploaded = self.sha256
                size = f"{len(data) / 1e6:.1f} MB"
                self._log.line(f"  timing cache {self._name} of {store.place}, {size}")
                return True
        return False

    def upload(self) -> None:
        """Write the cache to every store; of two builds at once, the last writer's remains."""
        digest = self.sha256
        if digest is None or digest == self._uploaded:
            return
        for store in self._stores:
            try:
                store.upload(self.path, self._name)
            except PublishFailed as error:
                self._log.line(f"  the timing cache is not kept: {error}")
        self._uploaded = digest

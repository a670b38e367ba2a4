"""One network in every runtime of a GPU: plans, ONNX Runtime's providers, PyTorch.

`python -m benchmarks.gpu.engines NAME FOLDER RUNTIME` loads one runtime and runs each batch once:
what a runtime compiles is in its cache afterwards, and one that crashes ends that process alone.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from benchmarks.gpu.networks import NETWORKS, feed_of, module_of
from benchmarks.runtimes.engines import CompiledModule, Device, latency_rows
from engine_build.datasets.dataset import Array, Feed, Shape
from engine_build.errors import SourceFault, one_line
from engine_build.evaluation.latency import CONTROL, Engine
from engine_build.evaluation.runtimes import SETTLING_SECONDS, TorchModule
from engine_build.ort import BoundNetwork
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import CompileOptions, Dialect, InputRange, compile_command
from onboarding.values import Precision
from tests.gpu.networks import SEQUENCE, SHORTEST, Made

BATCHES = (1, 8, 32)
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8", "fp8")
EAGER, COMPILED, TENSORRT = "PyTorch eager", "torch.compile", "TensorRT"
CUDA, PROVIDER = "ONNX Runtime CUDA", "ONNX Runtime TensorRT"
COMPILES = (COMPILED, CUDA, PROVIDER)
"""Runtimes that are tried in a process of their own first."""
RUNTIMES: tuple[tuple[str, str], ...] = (
    *((EAGER, "fp32"), (EAGER, "fp16"), (COMPILED, "fp16"), (CUDA, "fp16"), (PROVIDER, "fp16")),
    *((TENSORRT, precision) for precision in PRECISIONS),
)
"""The first gives the answers that the others are held against; the second runs twice."""
MIB = 2**20
TENSORRT_PROVIDER = "TensorrtExecutionProvider"
Failures = Mapping[tuple[str, str], str]


class TensorrtProvider(BoundNetwork):
    """The FP32 network in FP16 by ONNX Runtime's TensorRT provider, for one profile."""

    def __init__(self, network: Path, ranges: Sequence[InputRange]) -> None:
        if TENSORRT_PROVIDER not in onnxruntime.get_available_providers():
            raise SourceFault(f"ONNX Runtime {onnxruntime.__version__} has no {TENSORRT_PROVIDER}")
        cache = network.with_name("provider")
        shapes = {
            f"trt_profile_{kind}_shapes": ",".join(
                f"{item.name}:{'x'.join(map(str, getattr(item, field)))}" for item in ranges
            )
            for kind, field in (("min", "smallest"), ("opt", "opt"), ("max", "largest"))
        }
        options = {
            "trt_fp16_enable": True,
            "trt_engine_cache_enable": True,
            "trt_engine_cache_path": str(cache),
            "trt_timing_cache_enable": True,
            "trt_timing_cache_path": str(cache),
            **shapes,
        }
        providers = [(TENSORRT_PROVIDER, options), "CUDAExecutionProvider", "CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(str(network), providers=providers)
        if self._session.get_providers()[0] != TENSORRT_PROVIDER:
            raise SourceFault(
                f"ONNX Runtime {onnxruntime.__version__} fell back from {TENSORRT_PROVIDER}"
            )
        self._device = "cuda"
        self.inputs = tuple(tensor.name for tensor in self._session.get_inputs())
        self._outputs = tuple(tensor.name for tensor in self._session.get_outputs())


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network, the folder of its files, and the device that runs it."""

    name: str
    folder: Path
    device: Device
    tiny: bool = False

    @cached_property
    def source(self) -> Made:
        """The module and its samples."""
        return module_of(self.name, tiny=self.tiny)

    @cached_property
    def fused(self) -> Any:
        """The module with PyTorch's fused attention, as it is used without us."""
        made = module_of(self.name, tiny=self.tiny)
        if hasattr(made.module.encoder.config, "num_attention_heads"):
            made.module.encoder.set_attn_implementation("sdpa")
        return made.module

    @cached_property
    def batches(self) -> list[tuple[Shape, Feed]]:
        """A batch of each size."""
        sequence = SEQUENCE if "input_ids" in self.source.inputs else None
        return [
            (Shape(batch=rows, sequence=sequence), feed_of(self.source, rows)) for rows in BATCHES
        ]

    def ranges(self) -> tuple[InputRange, ...]:
        """The one profile: texts from SHORTEST tokens, tuned for 8 rows."""
        low, opt, high = (feed for _, feed in self.batches)

        def shortest(shape: tuple[int, ...]) -> tuple[int, ...]:
            return (shape[0], SHORTEST) if len(shape) == 2 else shape

        return tuple(
            InputRange(
                name=name,
                smallest=shortest(low[name].shape),
                opt=opt[name].shape,
                largest=high[name].shape,
            )
            for name in self.source.inputs
        )

    def network(self, precision: str) -> Path:
        """Return what a plan is compiled from."""
        kind = "fp32" if precision == "bf16" else precision
        return self.folder / f"{kind}.onnx"

    def plan(self, precision: str) -> Path:
        """Return where a plan is, or will be."""
        return self.folder / f"{precision}.plan"

    def compile_options(self, precision: Precision) -> CompileOptions:
        """Return how a plan is compiled; all networks share the timing cache."""
        return CompileOptions(
            network=self.network(precision),
            plan=self.plan(precision),
            precision=precision,
            profiles=(self.ranges(),),
            timing_cache=self.folder.parent / "timing.cache",
        )

    def load(self, runtime: str, precision: str) -> Callable[[Feed], Array]:
        """Return a runtime's answer to a batch, from host memory to host memory.

        Raises BuildError, OSError, and whatever the runtime raises.
        """
        half = precision == "fp16"
        if runtime == EAGER:
            module = self.fused if half else self.source.module
            return TorchModule(module, module.inputs, device=self.device, half=half).rows
        if runtime == COMPILED:
            return CompiledModule(self.fused, device=self.device, half=True).rows
        if runtime == CUDA:
            return BoundNetwork(self.folder / "ort.onnx").rows
        if runtime == PROVIDER:
            return TensorrtProvider(self.network("fp32"), self.ranges()).rows
        plan = load_plan(self.plan(precision))
        plan.warm_up()
        return plan.rows


def plan_command(subject: Subject, precision: Precision, dialect: Dialect) -> tuple[str, ...]:
    """Return trtexec's command line. Raises InputRefused for what the dialect lacks."""
    return compile_command(subject.compile_options(precision), dialect).argv


def measure(subject: Subject, failures: Failures, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each runtime and batch, and one with the reason for each that failed."""
    engines: list[Engine] = []
    memory, failed = dict[tuple[str, str], float | None](), []
    for runtime, precision in RUNTIMES:
        key = runtime, precision
        try:
            if key in failures:
                raise SourceFault(failures[key])
            before = used_mib()
            run = subject.load(runtime, precision)
            for _, feed in subject.batches:
                run(feed)
            memory[key] = None if before is None else round((used_mib() or 0.0) - before, 1)
            engines.append(
                Engine(runtime=runtime, precision=precision, run=run, settling=SETTLING_SECONDS)
            )
        except Exception as fault:  # the other runtimes stay worth having
            reason = one_line(fault, 300) if isinstance(fault, SourceFault) else repr(fault)[:300]
            failed.append({"runtime": runtime, "precision": precision, "failed": reason})
        last = failed[-1] if key not in memory else {"device_mib": memory[key]}
        print(f"  {subject.name} {runtime} {precision}: {last}", flush=True)
    rows: list[dict[str, Any]] = []
    if engines:
        control = next((one for one in engines if one.precision == "fp16"), engines[0])
        engines.append(replace(control, precision=control.precision + CONTROL))
        rows = latency_rows(engines, subject.batches, seconds)
    for row in rows:
        row["device_mib"] = memory.get((row["runtime"], row["precision"]))
    return [*rows, *failed]


def used_mib() -> float | None:
    """Return the memory taken on the GPU, without what PyTorch keeps for later; None without one.

    What of this process nothing refers to is given back first.
    """
    gc.collect()
    if not torch.cuda.is_available():
        return None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return float((total - free) / MIB)


def device() -> Device:
    """Return what runs the networks, in FP32 without TF32, as TensorRT's FP32."""
    torch.backends.cudnn.allow_tf32 = False
    return "cuda" if torch.cuda.is_available() else "cpu"


def main(arguments: Sequence[str]) -> None:
    """Try one runtime."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.engines", description=__doc__)
    parser.add_argument("name", choices=NETWORKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runtime", choices=COMPILES)
    parser.add_argument("--tiny", action="store_true", help="networks of one layer")
    chosen = parser.parse_args(arguments)
    subject = Subject(name=chosen.name, folder=chosen.folder, device=device(), tiny=chosen.tiny)
    run = subject.load(chosen.runtime, "fp16")
    for _, feed in subject.batches:
        run(feed)


if __name__ == "__main__":
    main(sys.argv[1:])

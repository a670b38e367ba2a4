"""The command lines that are golden.

`python -m tests.unit.engine_build.golden_commands` writes their files anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine_build.tensorrt.trtexec import (
    CompileOptions,
    RunOptions,
    compile_command,
    plan_version_command,
    profile_ranges,
    run_command,
    version_command,
)
from onboarding.manifest import TensorRecord
from onboarding.model_spec import OptimizationProfileSpec

FOLDER = Path(__file__).parent / "golden/trtexec"
TEXT = tuple(
    TensorRecord(name=name, datatype="INT64", shape=(-1, -1))
    for name in ("input_ids", "attention_mask")
)
IMAGE = (
    TensorRecord(name="pixels", datatype="FP32", shape=(-1, 3, 224, 224)),
    TensorRecord(name="mean", datatype="FP32", shape=(3,)),
    TensorRecord(name="boxes:0", datatype="FP32", shape=(-1, 4)),
)
SHORT = profile_ranges(TEXT, OptimizationProfileSpec(batch=(1, 8, 32), sequence=(16, 128, 256)))
LONG = profile_ranges(TEXT, OptimizationProfileSpec(batch=(1, 1, 4), sequence=(256, 384, 512)))
FP16 = CompileOptions(
    network=Path("network.onnx"),
    plan=Path("model.plan"),
    precision="fp16",
    profiles=(SHORT,),
    timing_cache=Path("timing.cache"),
    workspace_mib=4096,
)
FP32 = replace(
    FP16,
    precision="fp32",
    profiles=(profile_ranges(IMAGE, OptimizationProfileSpec(batch=(1, 2, 4))),),
    workspace_mib=None,
)
INT8 = replace(
    FP16,
    precision="int8",
    profiles=(SHORT, LONG),
    optimization_level=5,
    tactic_shared_memory_kib=48,
)
BY_CACHE = replace(
    FP16, precision="int8", strongly_typed=False, calibration_cache=Path("calibration.cache")
)
BF16 = replace(FP16, precision="bf16", strongly_typed=False)
PORTABLE = replace(
    FP16, hardware_compatibility="ampere+", version_compatible=True, exclude_lean_runtime=True
)
SAME = replace(
    FP32,
    hardware_compatibility="same_compute_capability",
    verbosity="layer_names_only",
    profiles=(),
)
RUN = RunOptions(plan=Path("model.plan"), shapes=tuple((each.name, each.opt) for each in SHORT))
WHOLE_RUN = replace(
    RUN,
    profile=1,
    inputs=(("input_ids", Path("input-0.bin")), ("attention_mask", Path("input-1.bin"))),
    times=Path("times.json"),
    layers=Path("layers.json"),
    layer_times=Path("layer_times.json"),
)
COMMANDS = {
    **{
        f"{name}_{dialect}": compile_command(request, dialect)
        for name, request in {
            "fp16": FP16,
            "fp32": FP32,
            "int8": INT8,
            "portable": PORTABLE,
            "same": SAME,
        }.items()
        for dialect in (10, 11)
    },
    **{f"run_{dialect}": run_command(RUN, dialect) for dialect in (10, 11)},
    **{f"whole_run_{dialect}": run_command(WHOLE_RUN, dialect) for dialect in (10, 11)},
    "by_cache_10": compile_command(BY_CACHE, 10),
    "bf16_10": compile_command(BF16, 10),
    **{f"plan_version_{dialect}": plan_version_command(Path("model.plan")) for dialect in (10, 11)},
    **{f"banner_{dialect}": version_command() for dialect in (10, 11)},
}


def text(name: str) -> str:
    """A command, one argument a line."""
    return "\n".join(COMMANDS[name].argv) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for each in COMMANDS:
        (FOLDER / f"{each}.txt").write_text(text(each))

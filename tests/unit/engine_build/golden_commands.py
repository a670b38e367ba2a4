"""The command lines that are golden.

`python -m tests.unit.engine_build.golden_commands` writes their files anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine_build.tensorrt.trtexec import (
    VERSION_COMMAND,
    CompileOptions,
    compile_command,
    plan_version_command,
    profile_ranges,
    run_command,
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
ROWS = OptimizationProfileSpec(batch=(1, 2, 4))
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
FP32 = replace(FP16, precision="fp32", profiles=(profile_ranges(IMAGE, ROWS),), workspace_mib=None)
SAME = replace(FP32, hardware_compatibility="same_compute_capability", profiles=())
COMPILATIONS = {
    "fp16": FP16,
    "fp32": FP32,
    "int8": replace(FP16, precision="int8", profiles=(SHORT, LONG), optimization_level=5),
    "fp8": replace(FP16, precision="fp8"),
    "portable": replace(FP16, hardware_compatibility="ampere+", version_compatible=True),
    "same": SAME,
    "plugins": replace(FP16, is_sparse=True, plugins=(Path("libscale.so"), Path("libother.so.2"))),
}
BY_CACHE = replace(FP16, precision="int8", calibration_cache=Path("calibration.cache"))
BF16 = replace(FP16, precision="bf16")


def run_options(**changes):
    """Keyword arguments of `run_command`."""
    files = {"times": Path("times.json"), "layers": Path("layers.json")}
    return {"shapes": (), "inputs": (), "version_compatible": False, **files, **changes}


WHOLE_RUN = run_options(
    shapes=[(limits.name, limits.opt) for limits in SHORT],
    inputs=[("input_ids", Path("input-0.bin")), ("attention_mask", Path("input-1.bin"))],
    version_compatible=True,
    plugins=(Path("libscale.so"),),
)
COMMANDS = {"by_cache_10": compile_command(BY_CACHE, 10), "bf16_10": compile_command(BF16, 10)}
for dialect in (10, 11):
    COMMANDS |= {
        f"{name}_{dialect}": compile_command(options, dialect)
        for name, options in COMPILATIONS.items()
    } | {
        f"run_{dialect}": run_command(Path("model.plan"), dialect, **run_options()),
        f"whole_run_{dialect}": run_command(Path("model.plan"), dialect, **WHOLE_RUN),
        f"plan_version_{dialect}": plan_version_command(Path("model.plan")),
        f"banner_{dialect}": VERSION_COMMAND,
    }


def text(name: str) -> str:
    """A command, one argument a line."""
    return "\n".join(COMMANDS[name].argv) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name in COMMANDS:
        (FOLDER / f"{name}.txt").write_text(text(name))

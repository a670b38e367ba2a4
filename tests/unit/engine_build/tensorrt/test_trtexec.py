"""Golden command lines of both dialects, each flag one that trtexec's public parser reads.

`python -m tests.unit.engine_build.tensorrt.test_trtexec` writes their files anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine_build.errors import InputRefused
from engine_build.tensorrt.trtexec import (
    ONLY_IN_10,
    VERSION_COMMAND,
    CompileOptions,
    compile_command,
    plan_version_command,
    profile_ranges,
    run_command,
)
from onboarding.manifest import TensorRecord
from onboarding.model_spec import OptimizationProfileSpec

DATA = Path(__file__).parents[1] / "data"
FOLDER = Path(__file__).parents[1] / "golden/trtexec"
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


def known_flags(dialect):
    lines = (DATA / f"trtexec_flags_{dialect}.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if line.startswith("--")}


def flags(name):
    return {argument.split("=", 1)[0] for argument in COMMANDS[name].argv[1:]}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_the_golden_one_and_its_flags_exist(name):
    assert text(name) == (FOLDER / f"{name}.txt").read_text()
    assert flags(name) <= known_flags(int(name.rsplit("_", 1)[1]))


def test_every_golden_file_is_of_a_command_and_lost_flags_are_in_dialect_10_only():
    assert {path.stem for path in FOLDER.iterdir()} == set(COMMANDS)
    assert set(ONLY_IN_10) <= known_flags(10) - known_flags(11)


@pytest.mark.parametrize(
    ("options", "flag", "way_out"),
    [(BF16, "--bf16", "fp32, fp16, int8"), (BY_CACHE, "--int8", "fp16 or int8")],
)
def test_refuses_flags_that_dialect_11_has_lost_by_name(options, flag, way_out):
    with pytest.raises(InputRefused, match=f"TensorRT 11 has no {flag}; .*{way_out}"):
        compile_command(options, 11)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (
            (TensorRecord(name="pixels", datatype="FP32", shape=(-1, 3, -1, 224)),),
            r"input pixels has a dynamic axis 2, .*allowed: axis 0, the batch; export",
        ),
        (TEXT, "input input_ids has a dynamic axis 1"),
        (
            (TensorRecord(name="a,b", datatype="FP32", shape=(-1, 3)),),
            "input a,b has , in its name",
        ),
    ],
)
def test_refuses_inputs_that_shape_flags_cannot_describe(inputs, reason):
    with pytest.raises(InputRefused, match=reason):
        profile_ranges(inputs, ROWS)


def test_refuses_a_folder_whose_name_trtexec_cannot_read():
    options = run_options(inputs=[("input_ids", Path("out:1/input-0.bin"))])
    reason = r"out:1/input-0.bin has : in its name, .*name another folder with --out"
    with pytest.raises(InputRefused, match=reason):
        run_command(Path("model.plan"), 10, **options)


if __name__ == "__main__":
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name in COMMANDS:
        (FOLDER / f"{name}.txt").write_text(text(name))

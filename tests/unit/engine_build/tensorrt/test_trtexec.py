"""Golden command lines of both dialects, each flag one that trtexec's public parser reads."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from engine_build.errors import InputRefused
from engine_build.tensorrt.trtexec import ONLY_IN_10, compile_command, profile_ranges, run_command
from onboarding.manifest import TensorRecord
from onboarding.values import Precision
from tests.unit.engine_build.golden_commands import (
    BF16,
    BY_CACHE,
    COMMANDS,
    FOLDER,
    IMAGE,
    ROWS,
    TEXT,
    run_options,
    text,
)

DATA = Path(__file__).parents[1] / "data"


def known_flags(dialect):
    lines = (DATA / f"trtexec_flags_{dialect}.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if line.startswith("--")}


def flags(name):
    return {argument.split("=", 1)[0] for argument in COMMANDS[name].argv[1:]}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_the_golden_one_and_its_flags_exist(name):
    assert text(name) == (FOLDER / f"{name}.txt").read_text()
    assert flags(name) <= known_flags(int(name.rsplit("_", 1)[1]))


def test_every_golden_file_is_of_a_command():
    assert {path.stem for path in FOLDER.iterdir()} == set(COMMANDS)


def test_lost_flags_are_in_dialect_10_only():
    assert set(ONLY_IN_10) <= known_flags(10) - known_flags(11)


TYPED_FLAG = "--stronglyTyped"
TYPED = ("fp32", "fp16", "int8", "fp8")
TYPING = {"--stronglyTyped", "--fp16", "--bf16", "--int8", "--fp8", "--best", "--calib"}


def test_every_precision_is_strongly_typed_on_both_sides_of_tensorrt_11():
    """By name before 11, and as the only way there is since."""
    for name in TYPED:
        assert flags(f"{name}_10") & TYPING == {"--stronglyTyped"}
        assert flags(f"{name}_10") - flags(f"{name}_11") == {"--stronglyTyped"}
        assert flags(f"{name}_11") < flags(f"{name}_10")


def test_weak_typing_is_left_to_calibration_caches_and_bf16_before_11():
    weak = {
        name: flags(name) & TYPING for name in COMMANDS if flags(name) & (TYPING - {TYPED_FLAG})
    }
    assert weak == {"by_cache_10": {"--int8", "--fp16", "--calib"}, "bf16_10": {"--bf16"}}
    assert set(get_args(Precision)) == {*TYPED, "bf16"}


def test_fp32_alone_is_without_tf32():
    exact = {name for name in COMMANDS if "--noTF32" in flags(name)}
    assert exact == {"fp32_10", "fp32_11", "same_10", "same_11"}


def test_plan_runs_without_a_graph_and_otherwise_alike_in_both_dialects():
    assert flags("run_11") - flags("run_10") == {"--noCudaGraph"}
    assert flags("run_10") < flags("run_11")
    assert {"--noDataTransfers", "--useSpinWait"} <= flags("run_10")


@pytest.mark.parametrize("flag", ["--shapes", "--loadInputs", "--versionCompatible"])
def test_run_has_flags_only_for_the_options_given(flag):
    assert flag in flags("whole_run_10") and flag not in flags("run_10")


def test_profile_gives_each_input_its_own_rank():
    ranges = profile_ranges(IMAGE, ROWS)
    assert [(limits.name, limits.smallest, limits.opt, limits.largest) for limits in ranges] == [
        ("pixels", (1, 3, 224, 224), (2, 3, 224, 224), (4, 3, 224, 224)),
        ("boxes:0", (1, 4), (2, 4), (4, 4)),
    ]


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

"""Golden command lines of both dialects, each flag one that trtexec's public parser reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine_build.errors import InputRefused
from engine_build.tensorrt.trtexec import ONLY_IN_10, compile_command, profile_ranges, run_command
from onboarding.manifest import TensorRecord
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.golden_commands import (
    BF16,
    BY_CACHE,
    COMMANDS,
    FOLDER,
    FP16,
    IMAGE,
    RUN,
    TEXT,
    text,
)

DATA = Path(__file__).parents[1] / "data"


def flags(dialect):
    lines = (DATA / f"trtexec_flags_{dialect}.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if line.startswith("--")}


def used(command):
    return {argument.split("=", 1)[0] for argument in command.argv[1:]}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_the_golden_one(name):
    assert text(name) == (FOLDER / f"{name}.txt").read_text()


def test_every_golden_file_is_of_a_command():
    assert {path.stem for path in FOLDER.iterdir()} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_public_parser_reads_every_flag(name):
    assert used(COMMANDS[name]) <= flags(int(name.rsplit("_", 1)[1]))


def test_flags_said_to_be_lost_are_lost():
    assert set(ONLY_IN_10) <= flags(10)
    assert set(ONLY_IN_10).isdisjoint(flags(11))


def test_dialect_11_has_no_typing_flags_at_all():
    ten, eleven = COMMANDS["int8_10"].argv, COMMANDS["int8_11"].argv
    assert [argument for argument in ten if argument not in eleven] == ["--stronglyTyped"]
    assert set(eleven) < set(ten)


def test_both_dialects_measure_the_same_way():
    assert COMMANDS["run_10"].argv == COMMANDS["run_11"].argv
    assert {"--useCudaGraph", "--noDataTransfers", "--useSpinWait"} <= used(COMMANDS["run_10"])


def test_plan_runs_without_a_graph_in_both_dialects():
    plain = {
        dialect: used(run_command(replace(RUN, cuda_graph=False), dialect)) for dialect in (10, 11)
    }
    assert (
        plain[11] - plain[10] == {"--noCudaGraph"} <= flags(11)
        and "--useCudaGraph" not in plain[10] | plain[11]
    )


def test_profile_gives_each_input_its_own_rank():
    ranges = profile_ranges(IMAGE, OptimizationProfileSpec(batch=(1, 2, 4)))
    assert [(each.name, each.smallest, each.opt, each.largest) for each in ranges] == [
        ("pixels", (1, 3, 224, 224), (2, 3, 224, 224), (4, 3, 224, 224)),
        ("boxes:0", (1, 4), (2, 4), (4, 4)),
    ]


def test_measurement_of_a_network_without_dynamic_axes_has_no_shapes():
    assert "--shapes" in used(COMMANDS["run_10"])
    assert "--shapes" not in used(run_command(replace(RUN, shapes=()), 10))


@pytest.mark.parametrize("dialect", [10, 11])
def test_only_a_version_compatible_plan_may_run_its_own_code(dialect):
    assert "--versionCompatible" in used(
        run_command(replace(RUN, version_compatible=True), dialect)
    )
    assert "--versionCompatible" not in used(run_command(RUN, dialect))


@pytest.mark.parametrize(
    ("request_", "flag", "way_out"),
    [(BF16, "--bf16", "fp32, fp16, int8"), (BY_CACHE, "--int8", "fp16 or int8")],
)
def test_refuses_flags_that_dialect_11_has_lost_by_name(request_, flag, way_out):
    with pytest.raises(InputRefused, match=f"TensorRT 11 has no {flag}; .*{way_out}"):
        compile_command(request_, 11)


def test_refuses_int8_without_ranges():
    with pytest.raises(InputRefused, match="without Q/DQ nodes needs a calibration cache"):
        compile_command(replace(BY_CACHE, calibration_cache=None), 10)


def test_refuses_to_leave_the_lean_runtime_out_of_a_plan_that_has_none():
    with pytest.raises(InputRefused, match="version-compatible plans only"):
        compile_command(replace(FP16, exclude_lean_runtime=True), 11)


def test_refuses_an_axis_that_no_profile_sizes():
    image = (TensorRecord(name="pixels", datatype="FP32", shape=(-1, 3, -1, 224)),)
    with pytest.raises(
        InputRefused,
        match=r"input pixels has a dynamic axis 2, .*allowed: axis 0, the batch; export",
    ):
        profile_ranges(image, OptimizationProfileSpec(batch=(1, 2, 4)))


def test_refuses_a_sequence_that_the_profile_leaves_out():
    with pytest.raises(InputRefused, match="input input_ids has a dynamic axis 1"):
        profile_ranges(TEXT, OptimizationProfileSpec(batch=(1, 2, 4)))


def test_refuses_a_folder_whose_name_trtexec_cannot_read():
    with pytest.raises(
        InputRefused, match=r"out:1/input-0.bin has : in its name, .*name another folder with --out"
    ):
        run_command(replace(RUN, inputs=(("input_ids", Path("out:1/input-0.bin")),)), 10)


def test_refuses_an_input_whose_name_trtexec_cannot_read():
    odd = (TensorRecord(name="a,b", datatype="FP32", shape=(-1, 3)),)
    with pytest.raises(InputRefused, match="input a,b has , in its name"):
        profile_ranges(odd, OptimizationProfileSpec(batch=(1, 2, 4)))

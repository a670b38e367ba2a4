"""What an acceptance run reads in a build's output, on output that others published."""

from __future__ import annotations

from pathlib import Path

import pytest

from roundhouse.acceptance import build_output

pytestmark = pytest.mark.unit

PUBLISHED = Path(__file__).resolve().parents[3] / "fixtures" / "published_trtexec"


def text_of(name):
    return (PUBLISHED / name).read_text(encoding="utf-8")


def build_log(*names, prefix=""):
    """A build's output as the builder prints it, behind the times of a log service."""
    lines = ["check: the machine", "  $ nvidia-smi --query-gpu=name"]
    for name in names:
        lines += [f"  | {line}" for line in text_of(name).splitlines()]
    text = " ".join(map(str.strip, text_of("layers-10.16.1.11.json").split("\n")))
    lines.append(f"  inspector: {text}")
    return "\n".join(prefix + line for line in lines)


@pytest.mark.parametrize("prefix", ["", "[Container] 2026/11/23 02:10:45.1 ", "1763863845123 "])
def test_output_of_programs_is_found_behind_what_log_services_put_before_it(prefix):
    log = build_log("nvidia-smi-h200.csv", "trtexec-10.16.1.11.log", prefix=prefix)
    output = build_output.shown_output(log)
    assert output.startswith("NVIDIA H200, ")
    assert build_output.read_banner(output).value == "10.16.1.11"
    assert build_output.read_host(output).value.driver == "580.159.04"
    assert build_output.read_median(output).value == 0.0440674
    (inspector,) = build_output.inspector_texts(log)
    assert build_output.read_inspection(inspector).value.layers == 9


def test_every_published_layer_has_the_keys_that_are_read():
    keys = build_output.layer_keys(text_of("layers-10.16.1.11.json"))
    assert keys >= build_output.KNOWN_LAYER_KEYS
    assert {"TacticName", "StreamId", "Metadata"} <= keys
    assert "Weights" not in keys


def test_bare_names_have_no_keys():
    assert build_output.layer_keys('{"Layers": ["a", "b"], "Bindings": ["x"]}') == frozenset()


def test_plan_version_is_read_as_the_program_prints_it():
    output = "[11/23/2026-02:10:45] [I] Plan was created with TensorRT version 10.16.1.11"
    assert build_output.read_plan_version(output).value == "10.16.1.11"


def test_a_banner_without_a_build_is_a_fault_and_not_a_guess():
    reading = build_output.read_banner(text_of("trtexec-10.2.0.log"))
    assert (reading.value, reading.fault) == (None, "the banner has another form")
    assert "v100200" in reading.text


@pytest.mark.parametrize(
    ("read", "output"),
    [
        (build_output.read_banner, ""),
        (build_output.read_plan_version, "Plan was created with TensorRT 10"),
        (build_output.read_median, "[I] Latency: median=11 ms"),
        (build_output.read_host, "NVIDIA-SMI has failed"),
        (build_output.read_host, "NVIDIA A10G, unknown, 8.6"),
        (build_output.read_inspection, '{"Layers": []}'),
        (build_output.read_inspection, "not JSON"),
    ],
)
def test_refuses_another_form_with_a_reason(read, output):
    reading = read(output)
    assert reading.value is None and reading.fault

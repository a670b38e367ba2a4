"""Our parsers on output of NVIDIA's programs that others published; its README has the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_build.errors import NetworkRefused
from engine_build.quantization.calibration_cache import ENTROPY, parse_cache, version_digits
from engine_build.tensorrt.host import BANNER, GpuHost, parse_host
from engine_build.tensorrt.plan import inspection

PUBLISHED = Path(__file__).resolve().parents[3] / "fixtures" / "published_trtexec"


def text_of(name):
    return (PUBLISHED / name).read_text(encoding="utf-8")


def test_inspector_file_of_10_16_is_read_whole():
    listed = inspection(text_of("layers-10.16.1.11.json"))
    assert listed.tensors == {"x", "y", "z"}
    assert (listed.inputs, listed.profiles) == (None, None)
    assert (listed.layers, listed.int8_layers, listed.opaque_layers) == (9, 0, 0)


def test_layers_of_a_second_profile_are_left_out_that_do_not_name_it_themselves():
    text = text_of("profiles-10.16.json")
    assert text.count('"LayerType"') == 26
    assert inspection(text).layers == 13


def test_layers_of_one_profile_all_count():
    text = text_of("profiles-10.16.json").replace(" [profile 1]", "")
    assert inspection(text).layers == 26


def test_banner_of_10_16_names_version_and_build():
    match = BANNER.search(text_of("trtexec-10.16.1.11.log"))
    assert match is not None and match.groups() == ("101601", "11")


def test_banner_of_10_2_names_no_build():
    assert BANNER.search(text_of("trtexec-10.2.0.log")) is None


def test_nvidia_smi_of_an_h200_is_read():
    expected = GpuHost(gpu="NVIDIA H200", driver="580.159.04", compute_capability="9.0")
    assert parse_host(text_of("nvidia-smi-h200.csv").strip()) == expected


def test_calibration_cache_of_tensorrt_10_is_read():
    cache = parse_cache((PUBLISHED / "calibration-10.0.1.cache").read_bytes(), "published")
    assert (cache.version, cache.algorithm) == (version_digits("10.0.1.6"), ENTROPY)
    assert set(cache.scales) == {
        "inputT0",
        "outputT0",
        "(Unnamed Layer* 0) [PluginV3_V3ONE]_output",
    }
    assert cache.scales["outputT0"] == pytest.approx(0.3825076)


def test_refuses_a_log_in_the_place_of_the_inspectors_file():
    with pytest.raises(NetworkRefused, match="cannot be read"):
        inspection(text_of("trtexec-10.16.1.11.log"))

"""Libraries that gcc made, and files that are none, read by their headers."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess

import pytest

from onboarding.shared_library import read_shared_library, tensorrt_misfit
from tests.shared_libraries import FIXTURE, of_aarch64, plugin

BUILD = "10.16.1.11"


@pytest.fixture
def library(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    return plugin(tmp_path / "libscale.so")


def write(tmp_path, data):
    path = tmp_path / "changed.so"
    path.write_bytes(data)
    return path


def test_library_names_its_processor_and_what_it_is_linked_with(library):
    facts = read_shared_library(library)
    assert (facts.machine, facts.tensorrt_majors) == ("x86-64", {10})
    assert facts.needed[0] == "libnvinfer.so.10"
    assert facts.sha256 == hashlib.sha256(library.read_bytes()).hexdigest()
    assert tensorrt_misfit(facts, BUILD) is None


def test_fixture_of_the_onboarding_tree_is_such_a_library():
    assert tensorrt_misfit(read_shared_library(FIXTURE), BUILD) is None


def test_refuses_a_library_of_another_processor(library, tmp_path):
    misfit = tensorrt_misfit(read_shared_library(write(tmp_path, of_aarch64(library))), BUILD)
    assert "another processor" in str(misfit) and "(AArch64); allowed: x86-64" in str(misfit)


def test_refuses_a_library_of_32_bits(library, tmp_path):
    data = bytearray(library.read_bytes())
    data[4], data[18:20] = 1, (3).to_bytes(2, "little")
    misfit = tensorrt_misfit(read_shared_library(write(tmp_path, bytes(data))), BUILD)
    assert "x86 (32 bits)" in str(misfit)


@pytest.mark.parametrize(
    ("major", "words"),
    [
        (11, r"linked with another TensorRT.*libnvinfer.so.11.*allowed: libnvinfer.so.10"),
        (None, r"linked with no library of TensorRT"),
    ],
)
def test_refuses_a_library_of_another_tensorrt(library, tmp_path, major, words):
    other = read_shared_library(plugin(tmp_path / "other/libscale.so", major=major))
    assert re.search(words, str(tensorrt_misfit(other, BUILD)))


def test_refuses_what_is_no_library(library, tmp_path):
    source = tmp_path / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    for name, option in (("object.o", "-c"), ("program", "-pie"), ("fixed", "-no-pie")):
        subprocess.run(("gcc", option, "-fPIE", "-o", tmp_path / name, source), check=True)
        with pytest.raises(ValueError, match="no shared library"):
            read_shared_library(tmp_path / name)
    with pytest.raises(ValueError, match="no ELF file"):
        read_shared_library(source)


def test_damaged_libraries_are_refused_in_words(library, tmp_path):
    data, chance = library.read_bytes(), random.Random(7)
    refused = 0
    for number in range(200):
        damaged = bytearray(data[: chance.randrange(4, len(data))] if number % 2 else data)
        for _ in range(8):
            damaged[chance.randrange(4, min(len(damaged), 1200) or 5) % len(damaged)] = (
                chance.randrange(256)
            )
        try:
            read_shared_library(write(tmp_path, bytes(damaged)))
        except ValueError as error:
            assert str(error).startswith("is ")
            refused += 1
    assert refused > 30

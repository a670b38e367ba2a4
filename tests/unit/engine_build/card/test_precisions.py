"""The table of precisions: what the build measured, and nothing else."""

from __future__ import annotations

import json

import pytest

from engine_build.card.facts import CardFacts
from engine_build.card.page import card_data, card_page
from engine_build.card.precisions import (
    LEFT_OUT,
    MEASURED,
    NOT_RECORDED,
    PUBLISHED,
    precision_rows,
    precisions_markdown,
)
from onboarding.manifest import RuntimeRecord
from onboarding.source_spec import SourceSpec
from tests.unit.engine_build.sample_cards import card, cpu_card

pytestmark = pytest.mark.unit
LEFT = {"fp32": "auto takes it only where FP16 misses the budget", "fp8": "no candidate | of this"}


def facts():
    records = (
        RuntimeRecord(
            runtime="tensorrt", precision="int8", load_seconds=0.4, host_memory_mib=212.4,
            device_memory_mib=143.0, engine_bytes=25_000_000,
        ),
        RuntimeRecord(
            runtime="tensorrt", precision="fp16", load_seconds=0.5, host_memory_mib=231.5,
            device_memory_mib=187.5, engine_bytes=46_000_000, weights_bytes=45_000_000,
        ),
        RuntimeRecord(
            runtime="pytorch", precision="fp32", load_seconds=3.0, host_memory_mib=801.0
        ),
    )  # fmt: skip
    return card(runtimes=records, left_out=LEFT)


def test_rows_are_the_four_precisions_with_what_was_measured():
    rows = {row.precision: row for row in precision_rows(facts())}
    assert list(rows) == ["fp32", "fp16", "int8", "fp8"]
    assert [row.state for row in rows.values()] == [LEFT_OUT, MEASURED, PUBLISHED, LEFT_OUT]
    int8, fp16 = rows["int8"], rows["fp16"]
    assert (int8.engine_bytes, int8.weights_bytes, int8.device_memory_mib) == (25e6, None, 143.0)
    assert (fp16.weights_bytes, fp16.device_memory_mib) == (45_000_000, 187.5)
    assert int8.p50_ms < fp16.p50_ms and int8.accuracy_mean < fp16.accuracy_mean
    assert int8.reason is None and int8.verdict == "pass"


def test_nothing_is_taken_from_another_runtime():
    row = precision_rows(facts())[0]
    assert row.host_memory_mib is None and row.p50_ms is None and row.engine_bytes is None
    assert row.reason == LEFT["fp32"]


def test_older_builds_kept_no_record_of_what_they_left_out():
    rows = {row.precision: row for row in precision_rows(cpu_card())}
    assert rows["fp32"].state == PUBLISHED and rows["fp32"].engine_bytes is None
    assert {rows[name].reason for name in ("fp16", "int8", "fp8")} == {NOT_RECORDED}


def test_card_and_its_json_show_the_rows():
    page, document = card_page(facts()).decode(), json.loads(card_data(facts()))
    assert "<h2>Precisions</h2>" in page and LEFT["fp32"] in page and "45.0 MB" in page
    assert [row["precision"] for row in document["precisions"]] == ["fp32", "fp16", "int8", "fp8"]
    assert document["precisions"][3]["p50_ms"] is None


def test_markdown_has_a_row_for_each_precision():
    lines = precisions_markdown(precision_rows(facts())).splitlines()
    assert len(lines) == 6 and lines[1].count("---") == lines[0].count("|") - 1
    assert r"no candidate \| of this" in lines[-1]


def test_build_keeps_sizes_and_the_reasons_of_what_it_left_out(tiny_build):
    entry = tiny_build.result.entry
    facts = CardFacts(
        entry=entry, source=SourceSpec(onnx="models/x.onnx", sha256="d" * 64), environment="desk"
    )
    rows = {row.precision: row for row in precision_rows(facts)}
    fp32, int8 = rows["fp32"], rows["int8"]
    assert fp32.weights_bytes > int8.weights_bytes > 0
    for row in (fp32, int8):
        assert row.engine_bytes > row.weights_bytes and row.p50_ms > 0 and row.verdict == "pass"
    assert "gains nothing" in rows["fp16"].reason and rows["fp8"].reason

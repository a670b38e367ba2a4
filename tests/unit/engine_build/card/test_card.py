"""The card: well-formed, self-contained, escaped, and with every number that was recorded."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import pytest

from engine_build.card import formats
from engine_build.card.facts import CardFacts
from engine_build.card.page import card_data, card_files, card_page
from engine_build.card.precisions import (
    LEFT_OUT,
    MEASURED,
    NOT_RECORDED,
    PUBLISHED,
    precision_rows,
    precisions_markdown,
)
from engine_build.card.render import milliseconds, per_second
from engine_build.log import Log
from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord
from engine_build.options import Options
from engine_build.request import build_request
from engine_build.store import FolderStore
from onboarding.lock import LockEntry
from onboarding.manifest import QuantizationRecord, RuntimeIdentity, RuntimeRecord
from onboarding.names import engine_card_data_path, engine_card_path, network_path
from onboarding.source_spec import SourceSpec
from tests.unit.engine_build.sample_cards import MEANS, NEIGHBOURS, SHARES, WORSTS, card, cpu_card

HOSTILE = "\"><script>alert(1)</script>&<img src=http://x onerror=a>'{{7*7}}"
VOID = {"meta", "br", "line", "circle", "rect", "path", "polyline"}
LOADS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}


class Page(HTMLParser):
    """Reads a page; raises when an element is not closed where it must be."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self._open == []
        self.text = "\n".join(self._texts)
        self.tags = [tag for tag, _ in self.elements]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self._texts.append(data)

    def lacks(self, *texts):
        """Return the texts that the page does not show."""
        return [text for text in texts if text not in self.text]


@pytest.fixture(params=[card, cpu_card])
def facts(request):
    return request.param()


def test_page_is_well_formed_and_names_its_language(facts):
    page = Page(card_page(facts))
    assert page.elements[0] == ("html", {"lang": "en"})
    assert page.tags.count("h1") == 1


def test_page_loads_nothing_and_runs_nothing(facts):
    data = card_page(facts)
    page = Page(data)
    assert {"script", "link", "iframe", "img", "object", "form"}.isdisjoint(page.tags)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name in LOADS or name.startswith("on")]
    assert b"@import" not in data and b"url(" not in data
    metas = [attributes for tag, attributes in page.elements if "http-equiv" in attributes]
    policies = [attributes["content"] for attributes in metas]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_page_shows_every_accuracy_that_was_recorded():
    facts = card()
    page = Page(card_page(facts))
    for record in facts.manifest.accuracy:
        values = (record.mean, record.worst, *record.mean_interval)
        neighbours = formats.percent(record.nearest_neighbour_agreement)
        assert page.lacks(*map(formats.score, values), neighbours) == []


def test_page_shows_every_latency_and_memory_that_was_recorded():
    facts = card()
    page, manifest = Page(card_page(facts)), facts.manifest
    for record in manifest.benchmark:
        latencies = (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms)
        texts = [milliseconds(value).removesuffix(" ms") for value in latencies]
        shape = formats.shape(record.batch, record.sequence)
        assert page.lacks(*texts, per_second(record.rows_per_second), shape) == []
    for speedup in manifest.speedups:
        interval = f"{speedup.low:.2f} to {speedup.high:.2f}"
        assert page.lacks(f"{speedup.ratio:.2f} ×", interval) == []
    for runtime in manifest.runtimes:
        memory = formats.mebibytes(runtime.host_memory_mib)
        assert page.lacks(f"{runtime.load_seconds:.2f} s", memory) == []


def test_page_shows_the_frontier_the_layers_and_why():
    facts = card()
    page = Page(card_page(facts))
    assert page.lacks(*map(formats.percent, (*SHARES, *NEIGHBOURS))) == []
    assert page.lacks(*map(formats.score, (*MEANS, *WORSTS))) == []
    for layer in facts.layers:
        assert page.lacks(layer["node"], layer["why"]) == []
    assert page.lacks(*facts.manifest.quantization.float_layers) == []


def test_page_shows_what_it_is_and_how_to_make_it_again():
    facts = card()
    page, manifest = Page(card_page(facts)), facts.manifest
    command = (
        "python -m engine_build --root . --environment prod --model sentence-embedder --out "
        "build/sentence-embedder"
    )
    texts = (
        manifest.decision,
        facts.source.huggingface,
        "NVIDIA A10G, compute capability 8.6",
        "TensorRT 10.16.1.11",
        manifest.engine_key,
        facts.entry.archive.sha256,
        facts.entry.archive.manifest_sha256,
        manifest.plan.command,
        "git checkout 9c2edff0",
        command,
    )
    assert page.lacks(*texts, *manifest.files, *manifest.files.values()) == []


RUNTIME = RuntimeIdentity(name="onnxruntime", version="1.31.1")
DYNAMIC = QuantizationRecord(mode="dynamic", int8_layers=24)
BY_CACHE = QuantizationRecord(mode="calibration-cache", method="entropy", samples=256)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "The published plan runs it."),
        ({"precision": "fp16"}, "The published engine is not made of it."),
        (
            {"runtime": RUNTIME, "compute_capability": "cpu", "quantization": DYNAMIC},
            "24 layers are in INT8; ONNX Runtime's dynamic quantization of the float network",
        ),
        (
            {"quantization": BY_CACHE},
            "TensorRT chose the layers that are in INT8; calibration-cache mode, entropy "
            "calibration on 256 samples.",
        ),
    ],
)
def test_page_says_what_became_of_the_int8_network(changes, sentence):
    facts = card(**changes)
    if "quantization" in changes:
        facts = dataclasses.replace(facts, networks={})
    assert sentence in Page(card_page(facts)).text


def test_page_leaves_out_what_was_not_recorded():
    data = card_page(cpu_card())
    page = Page(data)
    assert page.lacks("Compilation") == ["Compilation"] and b"<h2>INT8" not in data
    assert page.lacks("calm, glad, sad", "CPU") == []


def hostile_layer(facts):
    layers = [facts.layers[0] | {"node": HOSTILE, "why": HOSTILE}]
    return dataclasses.replace(facts, networks={"int8": {"layers": layers}})


def hostile_machine(facts):
    changes = {"machine": HOSTILE, "image": HOSTILE}
    return card(builder=facts.manifest.builder.model_copy(update=changes))


def hostile_source(facts):
    source = facts.source.model_copy(update={"huggingface": HOSTILE})
    return dataclasses.replace(facts, source=source, environment=HOSTILE)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: card(model=HOSTILE),
        lambda facts: card(decision=HOSTILE),
        lambda facts: card(labels=(HOSTILE, "b")),
        hostile_layer,
        hostile_machine,
        hostile_source,
    ],
    ids=["model", "decision", "label", "layer", "machine", "source"],
)
def test_refuses_to_take_a_name_for_markup(change):
    page = Page(card_page(change(card())))
    assert HOSTILE in page.text
    assert {"script", "img"}.isdisjoint(page.tags)


def test_card_is_a_function_of_its_facts(facts):
    assert card_page(facts) == card_page(facts)
    assert card_data(facts) == card_data(facts)


def test_data_holds_the_entry_and_the_networks():
    facts = card()
    document = json.loads(card_data(facts))
    assert LockEntry.model_validate_json(json.dumps(document["entry"])) == facts.entry
    assert document["networks"]["int8"]["frontier"] == list(facts.networks["int8"]["frontier"])
    assert document["source"] == {"huggingface": facts.source.huggingface}


def test_files_are_made_of_the_networks_that_were_kept(tiny_build):
    entry, store = tiny_build.result.entry, FolderStore(tiny_build.store)
    key = entry.manifest.engine_key
    page, data = store.read(engine_card_path(key)), store.read(engine_card_data_path(key))
    document = json.loads(data)
    float32 = document["networks"]["float"]
    assert LockEntry.model_validate_json(json.dumps(document["entry"])) == entry
    record = store.read(network_path(entry.manifest.network_keys["float"], RECORD_NAME))
    assert float32 == NetworkRecord.model_validate_json(record).facts and float32["opset"]
    assert Page(page).text.count(entry.manifest.decision) == 1


def test_files_are_made_without_networks_that_are_gone(tiny_build, tmp_path):
    options = Options(root=tiny_build.root, environment="desk", model="tiny", out=tiny_build.root)
    request = build_request(options, Log(io.StringIO()))
    files = dict(
        card_files(request, tiny_build.result.entry, [FolderStore(tmp_path / "none")], tmp_path)
    )
    data = files[engine_card_data_path(request.engine_key)].read_bytes()
    assert json.loads(data)["networks"] == {"float": {}, "int8": {}}


@pytest.mark.parametrize(
    ("source", "pin"),
    [
        ({"checkpoint": "checkpoints/x", "sha256": "d" * 64}, f"checkpoints/x, sha256 {'d' * 64}"),
        ({"onnx": "models/x.onnx", "sha256": "d" * 64}, f"models/x.onnx, sha256 {'d' * 64}"),
        ({"huggingface": f"a/b@{'c' * 40}", "path": "onnx"}, f"a/b@{'c' * 40}, folder onnx"),
    ],
)
def test_source_is_named_whatever_its_kind(source, pin):
    assert formats.source_pin(SourceSpec(**source)) == pin


def test_opset_of_the_network_is_shown():
    assert re.search(r"Opset of the network\s+18\b", Page(card_page(card())).text)


LEFT = {"fp32": "auto takes it only where FP16 misses the budget", "fp8": "no candidate | of this"}


def measurements():
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
    rows = {row.precision: row for row in precision_rows(measurements())}
    assert list(rows) == ["fp32", "fp16", "int8", "fp8"]
    assert [row.state for row in rows.values()] == [LEFT_OUT, MEASURED, PUBLISHED, LEFT_OUT]
    int8, fp16 = rows["int8"], rows["fp16"]
    assert (int8.engine_bytes, int8.weights_bytes, int8.device_memory_mib) == (25e6, None, 143.0)
    assert (fp16.weights_bytes, fp16.device_memory_mib) == (45_000_000, 187.5)
    assert int8.p50_ms < fp16.p50_ms and int8.accuracy_mean < fp16.accuracy_mean
    assert int8.reason is None and int8.verdict == "pass"


def test_nothing_is_taken_from_another_runtime():
    row = precision_rows(measurements())[0]
    assert row.host_memory_mib is None and row.p50_ms is None and row.engine_bytes is None
    assert row.reason == LEFT["fp32"]


def test_older_builds_kept_no_record_of_what_they_left_out():
    rows = {row.precision: row for row in precision_rows(cpu_card())}
    assert rows["fp32"].state == PUBLISHED and rows["fp32"].engine_bytes is None
    assert {rows[name].reason for name in ("fp16", "int8", "fp8")} == {NOT_RECORDED}


def test_card_and_its_json_show_the_rows():
    page, document = card_page(measurements()).decode(), json.loads(card_data(measurements()))
    assert "<h2>Precisions</h2>" in page and LEFT["fp32"] in page and "45.0 MB" in page
    assert [row["precision"] for row in document["precisions"]] == ["fp32", "fp16", "int8", "fp8"]
    assert document["precisions"][3]["p50_ms"] is None


def test_markdown_has_a_row_for_each_precision():
    lines = precisions_markdown(precision_rows(measurements())).splitlines()
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

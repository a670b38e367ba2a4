"""The card: well-formed, self-contained, escaped, and with every number that was recorded."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from engine_build.card import formats as card_text
from engine_build.card.charts import element, scale
from engine_build.card.facts import card_data
from engine_build.card.files import card_files
from engine_build.card.formats import source_pin
from engine_build.card.page import card_page
from engine_build.card.render import milliseconds, per_second
from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord
from engine_build.store import FolderStore
from onboarding.lock import LockEntry
from onboarding.manifest import QuantizationRecord, RuntimeIdentity
from onboarding.model_spec import SourceSpec
from onboarding.names import engine_card_data_path, engine_card_path, network_path
from tests.unit.engine_build.sample_cards import MEANS, NEIGHBOURS, SHARES, WORSTS, card, cpu_card

HOSTILE = "\"><script>alert(1)</script>&<img src=http://x onerror=a>'{{7*7}}"
VOID = {"meta", "br", "line", "circle", "rect", "path", "polyline"}
LOADS = ("src", "href", "srcset", "data", "action", "poster", "xlink:href")


class Page(HTMLParser):
    """Reads a page and keeps what a test asks for.

    Raises when an element is not closed where it must be.
    """

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode())
        self.close()
        assert self._open == []

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
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@pytest.fixture(params=[card, cpu_card])
def facts(request):
    return request.param()


def test_page_is_well_formed_and_names_its_language(facts):
    page = Page(card_page(facts))
    assert page.elements[0] == ("html", {"lang": "en"})
    assert [tag for tag, _ in page.elements].count("h1") == 1
    assert all(attributes["role"] == "img" for tag, attributes in page.elements if tag == "svg")


def test_page_loads_nothing_and_runs_nothing(facts):
    data = card_page(facts)
    page = Page(data)
    assert not {"script", "link", "iframe", "img", "object", "form"} & {
        tag for tag, _ in page.elements
    }
    assert not [
        name
        for _, attributes in page.elements
        for name in attributes
        if name in LOADS or name.startswith("on")
    ]
    assert b"@import" not in data and b"url(" not in data
    policies = [
        attributes["content"] for _, attributes in page.elements if attributes.get("http-equiv")
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_page_shows_every_accuracy_that_was_recorded():
    facts = card()
    text = Page(card_page(facts)).text
    for record in facts.manifest.accuracy:
        for value in (record.mean, record.worst, *record.mean_interval):
            assert card_text.score(value) in text
        assert card_text.percent(record.nearest_neighbour_agreement) in text


def test_page_shows_every_latency_and_memory_that_was_recorded():
    facts = card()
    text = Page(card_page(facts)).text
    for record in facts.manifest.benchmark:
        for value in (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms):
            assert milliseconds(value).removesuffix(" ms") in text
        assert per_second(record.rows_per_second) in text
        assert card_text.shape(record.batch, record.sequence) in text
    for speedup in facts.manifest.speedups:
        assert (
            f"{speedup.ratio:.2f} ×" in text and f"{speedup.low:.2f} to {speedup.high:.2f}" in text
        )
    for runtime in facts.manifest.runtimes:
        assert (
            f"{runtime.load_seconds:.2f} s" in text
            and card_text.mebibytes(runtime.host_memory_mib) in text
        )


def test_page_shows_the_frontier_the_layers_and_why():
    facts = card()
    text = Page(card_page(facts)).text
    for values, label in (
        (SHARES, card_text.percent),
        (MEANS, card_text.score),
        (WORSTS, card_text.score),
        (NEIGHBOURS, card_text.percent),
    ):
        assert all(label(value) in text for value in values)
    for layer in facts.layers:
        assert layer["node"] in text and layer["why"] in text
    assert all(name in text for name in facts.manifest.quantization.float_layers)


def test_page_shows_what_it_is_and_how_to_make_it_again():
    facts = card()
    text, manifest = Page(card_page(facts)).text, facts.manifest
    assert manifest.decision in text and facts.source.huggingface in text
    assert "NVIDIA A10G, compute capability 8.6" in text and "TensorRT 10.16.1.11" in text
    for item in (
        manifest.engine_key,
        facts.entry.archive.sha256,
        facts.entry.archive.manifest_sha256,
        manifest.plan.command,
    ):
        assert item in text
    assert all(name in text and digest in text for name, digest in manifest.files.items())
    assert "git checkout 9c2edff0" in text
    assert (
        "python -m engine_build --root . --environment prod --model sentence-embedder --out "
        "build/sentence-embedder" in text
    )


def test_page_says_what_became_of_the_int8_network():
    runtime = RuntimeIdentity(name="onnxruntime", version="1.31.1")
    assert "The published plan runs it." in Page(card_page(card())).text
    assert "The published engine is not made of it." in Page(card_page(card(precision="fp16"))).text
    assert (
        "by ONNX Runtime's dynamic quantization"
        in Page(card_page(card(runtime=runtime, compute_capability="cpu"))).text
    )


def test_page_says_that_a_calibration_cache_leaves_the_layers_to_tensorrt():
    record = QuantizationRecord(mode="calibration-cache", method="entropy", samples=256)
    text = Page(card_page(dataclasses.replace(card(quantization=record), networks={}))).text
    assert (
        "TensorRT chose the layers that are in INT8; calibration-cache mode, entropy calibration "
        "on 256 samples." in text
    )


def test_page_leaves_out_what_was_not_recorded():
    page = Page(card_page(cpu_card()))
    assert "INT8" not in page.text and "Compilation" not in page.text
    assert "calm, glad, sad" in page.text
    assert "CPU" in page.text


def test_chart_puts_values_where_their_scale_says():
    page = Page(card_page(card()))
    chosen = [
        attributes
        for tag, attributes in page.elements
        if tag == "circle" and attributes["r"] == "6.5"
    ]
    assert len(chosen) == 3
    across = scale(min(SHARES), 1.0, 44, 352, ticks=4, most=1.0)
    assert {float(item["cx"]) for item in chosen} == {round(across(0.7285), 2)}
    numbers = [
        value
        for tag, attributes in page.elements
        if tag in ("line", "rect", "circle")
        for value in attributes.values()
    ]
    assert not any(value is not None and re.search(r"nan|inf", value) for value in numbers)


@pytest.mark.parametrize("place", ["model", "decision", "layer", "label", "machine", "source"])
def test_refuses_to_take_a_name_for_markup(place):
    facts = card()
    if place == "layer":
        layers = [facts.layers[0] | {"node": HOSTILE, "why": HOSTILE}]
        facts = dataclasses.replace(facts, networks={"int8": {"layers": layers}})
    elif place == "label":
        facts = card(labels=(HOSTILE, "b"))
    elif place == "machine":
        facts = card(
            builder=facts.manifest.builder.model_copy(update={"machine": HOSTILE, "image": HOSTILE})
        )
    elif place == "source":
        source = facts.source.model_copy(update={"huggingface": HOSTILE})
        facts = dataclasses.replace(facts, source=source, environment=HOSTILE)
    else:
        facts = card(**{place: HOSTILE})
    page = Page(card_page(facts))
    assert HOSTILE in page.text
    assert not {"script", "img"} & {tag for tag, _ in page.elements}


def test_card_is_a_function_of_its_facts(facts):
    assert card_page(facts) == card_page(facts)
    assert card_data(facts) == card_data(facts)


def test_data_holds_the_entry_and_the_networks():
    facts = card()
    document = json.loads(card_data(facts))
    assert LockEntry.model_validate_json(json.dumps(document["entry"])) == facts.entry
    assert document["networks"]["int8"]["frontier"] == list(facts.networks["int8"]["frontier"])
    assert document["source"] == {"huggingface": facts.source.huggingface}


def test_files_are_made_of_the_networks_that_were_kept(built, tmp_path):
    entry, store = built.result.entry, FolderStore(built.store)
    key = entry.manifest.engine_key
    page, data = store.read(engine_card_path(key)), store.read(engine_card_data_path(key))
    assert page is not None and data is not None
    document = json.loads(data)
    assert LockEntry.model_validate_json(json.dumps(document["entry"])) == entry
    record = store.read(network_path(entry.manifest.network_keys["int8"], RECORD_NAME))
    assert document["networks"]["int8"] == NetworkRecord.model_validate_json(record).facts
    assert document["networks"]["int8"]["layers"]
    assert Page(page).text.count(entry.manifest.decision) == 1


def test_files_are_made_without_networks_that_are_gone(built, request_of, tmp_path):
    files = card_files(
        request_of(built), built.result.entry, FolderStore(tmp_path / "none"), tmp_path
    )
    data = next(path for name, path in files if name.endswith("card.json")).read_bytes()
    assert json.loads(data)["networks"] == {"float": {}, "int8": {}}


@pytest.fixture
def request_of():
    import io

    from engine_build.log import Log
    from engine_build.options import Options
    from engine_build.request import build_request

    return lambda built: build_request(
        Options(root=built.root, environment="desk", model="tiny", out=built.root),
        Log(io.StringIO()),
    )


def test_element_escapes_text_and_attributes_but_not_markup():
    text = element("text", "<&", [element("b", "")], title='"<')
    assert text == '<text title="&#34;&lt;">&lt;&amp;<b></b></text>'
    assert element("line", x1=1.0, stroke_width=1.255, class_=None) == (
        '<line x1="1" stroke-width="1.25"/>'
    )


@pytest.mark.parametrize(
    ("source", "pin"),
    [
        ({"checkpoint": "checkpoints/x", "sha256": "d" * 64}, f"checkpoints/x, sha256 {'d' * 64}"),
        ({"onnx": "models/x.onnx", "sha256": "d" * 64}, f"models/x.onnx, sha256 {'d' * 64}"),
        ({"huggingface": f"a/b@{'c' * 40}", "path": "onnx"}, f"a/b@{'c' * 40}, folder onnx"),
    ],
)
def test_source_is_named_whatever_its_kind(source, pin):
    assert source_pin(SourceSpec(**source)) == pin


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 9.3, (0, 2.5, 5, 7.5, 10)),
        (0.99, 0.99998, (0.99, 0.9925, 0.995, 0.9975, 1.0)),
        (1.0, 1.0, (0.975, 1.0)),
        (0, 0.0004, (0, 0.0001, 0.0002, 0.0003, 0.0004)),
        (-0.2, 1.0, (-0.5, 0, 0.5, 1.0)),
    ],
)
def test_scale_has_round_ticks_around_its_values(low, high, ticks):
    found = scale(low, high, 0, 100, most=1.0 if high <= 1 else float("inf"))
    assert found.ticks == pytest.approx(ticks)
    assert found.low <= low and found.high >= high
    assert 0 <= found(low) <= found(high) <= 100

"""The card: well-formed, self-contained, escaped, and with every number that was recorded."""

from __future__ import annotations

import dataclasses
import io
import json
from html.parser import HTMLParser

import pytest

from engine_build.card.page import (
    LEFT_OUT,
    MEASURED,
    NOT_RECORDED,
    PUBLISHED,
    CardFacts,
    card_data,
    card_files,
    card_page,
    precision_rows,
    precisions_markdown,
    source_pin,
)
from engine_build.log import Log
from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord
from engine_build.options import Options
from engine_build.request import build_request
from engine_build.store import FolderStore
from onboarding.lock import ArchiveRecord, LockEntry
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    BuilderRecord,
    Manifest,
    PlanRecord,
    ProfileRecord,
    QuantizationRecord,
    RuntimeIdentity,
    RuntimeRecord,
    SpeedupRecord,
    TensorRecord,
)
from onboarding.names import engine_card_data_path, engine_card_path, network_path
from onboarding.source_spec import SourceSpec

HOSTILE = "\"><script>alert(1)</script>&<img src=http://x onerror=a>'{{7*7}}"
VOID = {"meta", "br"}
LOADS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}
LEFT = {"fp32": "auto takes it only where FP16 misses the budget", "fp8": "no candidate | of this"}
BUILDER = BuilderRecord(
    machine="x86_64, 4 cores",
    gpu="NVIDIA A10G",
    image="builder-gpu@sha256:1234",
    source_commit="9c2edff0",
    built_at="2026-01-01T00:00:00+00:00",
)
NETWORKS = {
    "float": {"opset": 18},
    "int8": {
        "frontier": [
            {"share": 0.7285, "mean": 0.99722, "worst": 0.98562, "chosen": True},
            {"share": 0.9109, "mean": 0.98105, "worst": 0.90114, "chosen": False},
        ],
        "layers": [
            {"node": "/layer.0/query", "share": 0.0208, "int8": True, "why": "it drifts little"},
            {"node": "/layer.0/output", "share": 0.0833, "int8": False, "why": "it drifts much"},
        ],
    },
}


def accuracy(subject, mean):
    return AccuracyRecord(
        subject=subject,
        metric="cosine",
        mean=mean,
        mean_interval=(mean - 0.0001, mean + 0.0002),
        worst=mean - 0.01,
        samples=900,
        nearest_neighbour_agreement=mean - 0.08,
        budget_mean=0.99,
        budget_worst=0.95,
        verdict="pass",
    )


def benchmark(precision, p50, batch, runtime="tensorrt"):
    return BenchmarkRecord(
        runtime=runtime,
        precision=precision,
        batch=batch,
        sequence=128,
        average_ms=p50 * 1.02,
        p50_ms=p50,
        p95_ms=p50 * 1.11,
        p99_ms=p50 * 1.27,
        rows_per_second=batch * 980 / p50,
        repetitions=500,
    )


def runtime(precision, name="tensorrt", device=None, **sizes):
    return RuntimeRecord(
        runtime=name,
        precision=precision,
        load_seconds=0.4,
        host_memory_mib=212.4,
        device_memory_mib=device,
        **sizes,
    )


def card(networks=NETWORKS, **changes):
    """A TensorRT INT8 engine with a search behind it; `changes` replace fields of its manifest."""
    manifest = {
        "model": "embedder",
        "task": "text-embedding",
        "engine_key": "0123456789abcdef0123",
        "network_keys": {"float": "1" * 20, "int8": "2" * 20},
        "platform": "triton-26.05",
        "runtime": RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
        "compute_capability": "8.6",
        "requested_precision": "auto",
        "precision": "int8",
        "decision": "int8: 1.61 times as fast as fp16",
        "engine_file": "embedder_engine/1/model.plan",
        "tokenizer_file": "embedder_tokenizer/1/tokenizer.json",
        "inputs": (TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
        "outputs": (TensorRecord(name="embedding", datatype="FP32", shape=(-1, 384)),),
        "optimization_profiles": (ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 256)),),
        "max_batch_size": 32,
        "files": {"a": "e" * 64},
        "accuracy": (accuracy("fp16 engine", 0.99998), accuracy("int8 engine", 0.99722)),
        "compile_checks": (),
        "benchmark": tuple(
            benchmark(precision, p50 * batch, batch)
            for batch in (1, 8)
            for precision, p50 in (("fp16", 1.4), ("int8", 0.87))
        ),
        "speedups": (
            SpeedupRecord(
                candidate="int8",
                baseline="fp16",
                batch=8,
                sequence=128,
                ratio=1.61,
                low=1.57,
                high=1.66,
                control_low=0.98,
                control_high=1.03,
            ),
        ),
        "runtimes": (
            runtime("int8", device=143.0, engine_bytes=25_000_000),
            runtime("fp16", device=187.5, engine_bytes=46_000_000, weights_bytes=45_000_000),
            runtime("fp32", "pytorch"),
        ),
        "left_out": LEFT,
        "quantization": QuantizationRecord(
            mode="explicit", method="entropy", samples=256, int8_share_of_matmul_macs=0.7285
        ),
        "plan": PlanRecord(
            tensorrt="10.16.1.11",
            layers=118,
            int8_layers=62,
            timing_cache_sha256="f" * 64,
            command="trtexec --onnx=model.onnx",
        ),
        "load_seconds": 0.41,
        "host_memory_mib": 212.4,
        "device_memory_mib": 143.0,
        "builder": BUILDER,
    }
    archive = ArchiveRecord(
        path="engines/0123456789abcdef0123/model.tar.gz",
        sha256="a" * 64,
        size_bytes=31_457_280,
        manifest_sha256="b" * 64,
    )
    return CardFacts(
        entry=LockEntry(archive=archive, manifest=Manifest(**manifest | changes)),
        source=SourceSpec(huggingface=f"owner/name@{'c' * 40}"),
        environment="prod",
        networks=networks,
    )


def cpu_card():
    """A float32 engine for a CPU, with nothing that INT8 or TensorRT leave behind."""
    return card(
        networks={},
        runtime=RuntimeIdentity(name="onnxruntime", version="1.31.1"),
        compute_capability="cpu",
        precision="fp32",
        accuracy=(accuracy("fp32 engine", 1.0),),
        benchmark=(benchmark("fp32", 2.1, 1, "onnxruntime"),),
        speedups=(),
        runtimes=(),
        left_out={},
        quantization=None,
        plan=None,
        labels=("calm", "glad", "sad"),
        device_memory_mib=None,
    )


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

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self._texts.append(data)

    def lacks(self, *texts):
        """Return the texts that the page does not show."""
        return [text for text in texts if text not in self.text]


@pytest.mark.parametrize("facts", [card(), cpu_card()], ids=["gpu", "cpu"])
def test_page_is_well_formed_loads_and_runs_nothing_and_is_a_function_of_its_facts(facts):
    data = card_page(facts)
    page = Page(data)
    assert page.elements[0] == ("html", {"lang": "en"}) and page.tags.count("h1") == 1
    assert {"script", "link", "iframe", "img", "object", "form"}.isdisjoint(page.tags)
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name in LOADS or name.startswith("on")]
    assert b"@import" not in data and b"url(" not in data
    policies = [item["content"] for _, item in page.elements if "http-equiv" in item]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert (data, card_data(facts)) == (card_page(facts), card_data(facts))


def test_page_shows_what_was_recorded_and_how_to_make_it_again():
    facts = card()
    page, manifest = Page(card_page(facts)), facts.manifest
    numbers = ("0.99722", "0.99712 to 0.99742", "0.98722", "91.7\xa0%")
    times = ("6.96", "7.10", "7.73", "8.84", "1,126", "8 rows × 128 tokens")
    speedup = ("1.61 ×", "1.57 to 1.66", "0.98 to 1.03")
    search = ("72.9\xa0%", "91.1\xa0%", "0.98105", "/layer.0/output", "it drifts much")
    made = (
        manifest.decision,
        f"owner/name@{'c' * 40}",
        "NVIDIA A10G, compute capability 8.6",
        "TensorRT 10.16.1.11",
        *(manifest.engine_key, "a" * 64, "b" * 64, manifest.plan.command),
        "git checkout 9c2edff0",
        "python -m engine_build --root . --environment prod --model embedder --out build/embedder",
    )
    assert page.lacks(*numbers, *times, *speedup, *search, *made, "45.0 MB", LEFT["fp32"]) == []


def test_page_leaves_out_what_was_not_recorded():
    data = card_page(cpu_card())
    page = Page(data)
    assert page.lacks("Compilation") == ["Compilation"] and b"<h2>INT8" not in data
    assert page.lacks("calm, glad, sad", "CPU") == []


ORT = RuntimeIdentity(name="onnxruntime", version="1.31.1")
DYNAMIC = QuantizationRecord(mode="dynamic", int8_layers=24)
BY_CACHE = QuantizationRecord(mode="calibration-cache", method="entropy", samples=256)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "72.9\xa0% of the multiply-accumulates are in INT8; explicit mode, entropy"),
        ({}, "The published plan runs it."),
        ({"precision": "fp16"}, "The published engine is not made of it."),
        (
            {"runtime": ORT, "compute_capability": "cpu", "quantization": DYNAMIC},
            "24 layers are in INT8; ONNX Runtime's dynamic quantization of the float network",
        ),
        (
            {"quantization": BY_CACHE},
            "TensorRT chose the layers that are in INT8; calibration-cache mode, entropy "
            "calibration on 256 samples.",
        ),
        (
            {"quantization": QuantizationRecord(mode="source")},
            "the source network's own Q/DQ nodes, kept as they are",
        ),
    ],
)
def test_page_says_what_became_of_the_int8_network(changes, sentence):
    assert sentence in Page(card_page(card(**changes))).text


@pytest.mark.parametrize(
    "facts",
    [
        card(model=HOSTILE),
        card(decision=HOSTILE),
        card(labels=(HOSTILE, "b")),
        card({"int8": {"layers": [NETWORKS["int8"]["layers"][0] | {"node": HOSTILE}]}}),
        card({"int8": {"layers": [NETWORKS["int8"]["layers"][0] | {"why": HOSTILE}]}}),
        card(builder=BUILDER.model_copy(update={"machine": HOSTILE, "image": HOSTILE})),
        dataclasses.replace(card(), environment=HOSTILE),
        dataclasses.replace(
            card(), source=card().source.model_copy(update={"huggingface": HOSTILE})
        ),
    ],
)
def test_refuses_to_take_a_name_for_markup(facts):
    page = Page(card_page(facts))
    assert HOSTILE in page.text
    assert {"script", "img"}.isdisjoint(page.tags)


def test_data_holds_the_entry_the_networks_and_the_precisions():
    facts = card()
    document = json.loads(card_data(facts))
    assert LockEntry.model_validate_json(json.dumps(document["entry"])) == facts.entry
    assert document["networks"] == NETWORKS
    assert document["source"] == {"huggingface": facts.source.huggingface}
    assert [row["precision"] for row in document["precisions"]] == ["fp32", "fp16", "int8", "fp8"]


def test_files_are_made_of_the_networks_that_were_kept_or_without_them(tiny_build, tmp_path):
    entry, store = tiny_build.result.entry, FolderStore(tiny_build.store)
    key = entry.manifest.engine_key
    document = json.loads(store.read(engine_card_data_path(key)))
    record = store.read(network_path(entry.manifest.network_keys["float"], RECORD_NAME))
    facts = document["networks"]["float"]
    assert facts == NetworkRecord.model_validate_json(record).facts and facts["opset"]
    assert Page(store.read(engine_card_path(key))).text.count(entry.manifest.decision) == 1
    options = Options(root=tiny_build.root, environment="desk", model="tiny", out=tiny_build.root)
    request = build_request(options, Log(io.StringIO()))
    files = dict(card_files(request, entry, [FolderStore(tmp_path / "none")], tmp_path))
    data = files[engine_card_data_path(key)].read_bytes()
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
    assert source_pin(SourceSpec(**source)) == pin


def test_rows_are_the_four_precisions_with_what_was_measured_of_this_runtime():
    rows = {row.precision: row for row in precision_rows(card())}
    assert list(rows) == ["fp32", "fp16", "int8", "fp8"]
    assert [row.state for row in rows.values()] == [LEFT_OUT, MEASURED, PUBLISHED, LEFT_OUT]
    int8, fp16, fp32 = rows["int8"], rows["fp16"], rows["fp32"]
    assert (int8.engine_bytes, int8.weights_bytes, int8.device_memory_mib) == (25e6, None, 143.0)
    assert (fp16.weights_bytes, fp16.device_memory_mib) == (45_000_000, 187.5)
    assert (int8.p50_ms, fp16.p50_ms) == (8 * 0.87, 8 * 1.4)
    assert (int8.accuracy_mean, int8.verdict, int8.reason) == (0.99722, "pass", None)
    assert (fp32.host_memory_mib, fp32.p50_ms, fp32.reason) == (None, None, LEFT["fp32"])
    lines = precisions_markdown(precision_rows(card())).splitlines()
    assert len(lines) == 6 and lines[1].count("---") == lines[0].count("|") - 1
    assert r"no candidate \| of this" in lines[-1]


def test_older_builds_kept_no_record_of_what_they_left_out():
    rows = {row.precision: row for row in precision_rows(cpu_card())}
    assert rows["fp32"].state == PUBLISHED and rows["fp32"].engine_bytes is None
    assert {rows[name].reason for name in ("fp16", "int8", "fp8")} == {NOT_RECORDED}


def test_build_keeps_sizes_and_the_reasons_of_what_it_left_out(tiny_build):
    facts = dataclasses.replace(card(), entry=tiny_build.result.entry, networks={})
    rows = {row.precision: row for row in precision_rows(facts)}
    assert rows["fp32"].weights_bytes > rows["int8"].weights_bytes > 0
    for row in (rows["fp32"], rows["int8"]):
        assert row.engine_bytes > row.weights_bytes and row.p50_ms > 0 and row.verdict == "pass"
    assert "gains nothing" in rows["fp16"].reason and rows["fp8"].reason

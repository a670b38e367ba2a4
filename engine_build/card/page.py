"""The card as one HTML file that loads nothing."""

from __future__ import annotations

from engine_build.card import words
from engine_build.card.accuracy_section import accuracy_section
from engine_build.card.facts import CardFacts
from engine_build.card.latency_section import latency_section
from engine_build.card.markup import Markup, element, joined
from engine_build.card.quantization_section import quantization_section
from engine_build.card.record_sections import (
    compile_section,
    digest_section,
    reproduction_section,
    serving_section,
    source_pin,
)
from engine_build.card.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def card_page(facts: CardFacts) -> bytes:
    """UTF-8 HTML: the same facts give the same bytes."""
    body = element(
        "main",
        _head(facts),
        _tiles(facts),
        accuracy_section(facts),
        latency_section(facts),
        quantization_section(facts),
        compile_section(facts),
        serving_section(facts),
        digest_section(facts),
        reproduction_section(facts),
        element(
            "footer",
            f"Engine {facts.manifest.engine_key}. The same facts as JSON are in card.json beside this file.",
        ),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{facts.manifest.model}: engine card"),
        element("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n".encode()


def _head(facts: CardFacts) -> Markup:
    manifest = facts.manifest
    runtime = f"{words.runtime(manifest.runtime.name)} {manifest.runtime.version}"
    asked = f"asked for: {manifest.requested_precision}"
    chips = [
        element("li", manifest.precision.upper(), class_="chip main"),
        *(
            element("li", each, class_="chip")
            for each in (asked, runtime, words.device(manifest), manifest.platform)
        ),
    ]
    return element(
        "header",
        element(
            "p", f"Engine card · {words.TASKS.get(manifest.task, manifest.task)}", class_="over"
        ),
        element("h1", manifest.model),
        element("ul", chips, class_="chips"),
        element("p", manifest.decision, class_="decision"),
        element("p", "Source: ", element("code", source_pin(facts.source)), class_="note"),
    )


def _tiles(facts: CardFacts) -> Markup:
    manifest = facts.manifest
    tiles = [
        *_speed(facts),
        *_accuracy(facts),
        _tile("Size", words.size(facts.entry.archive.size_bytes), "archive, compressed"),
        _tile(
            "Load time",
            f"{manifest.load_seconds:.2f} s",
            f"adds {words.mebibytes(manifest.host_memory_mib)} of host memory",
        ),
        *(
            []
            if manifest.device_memory_mib is None
            else [_tile("Device memory", words.mebibytes(manifest.device_memory_mib), "on the GPU")]
        ),
    ]
    return element("dl", tiles, class_="tiles")


def _speed(facts: CardFacts) -> list[Markup]:
    record = facts.at_opt
    if record is None:
        return []
    place = words.shape(record.batch, record.sequence)
    return [
        _tile(
            "Median latency",
            words.milliseconds(record.p50_ms),
            f"{place}; p99 {words.milliseconds(record.p99_ms)}",
        ),
        _tile("Throughput", words.rate(record.rows_per_second), f"rows a second; {place}"),
    ]


def _accuracy(facts: CardFacts) -> list[Markup]:
    if not facts.manifest.accuracy:
        return []
    own = facts.manifest.accuracy[-1]
    return [
        _tile(
            "Accuracy",
            f"{own.mean:.4f}",
            f"mean {own.metric.replace('_', ' ')}, {own.samples} samples: {own.verdict}",
        )
    ]


def _tile(name: str, value: str, note: str) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", joined(value, element("small", note))),
        class_="tile",
    )

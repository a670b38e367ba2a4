"""How fast the engine is, beside every other runtime that was there."""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.card import words
from engine_build.card.facts import CardFacts
from engine_build.card.markup import Markup, element, joined
from engine_build.card.row_chart import WIDTH, Row, bars
from engine_build.card.scale import scale
from engine_build.card.table import Column, Line, figure, folded, section, table
from onboarding.manifest import BenchmarkRecord, RuntimeRecord, SpeedupRecord

Shape = tuple[int, int | None]
LEGEND = "Bars are medians; the tails reach to the 95th and the 99th percentile. Shorter is faster."
SPEEDUPS = (
    "A ratio above 1 is faster: the median over rounds that ran both in random order, with its 95 % interval. The control is the "
    "slower engine against its own duplicate: what lies within it is noise."
)


def latency_section(facts: CardFacts) -> Markup:
    """A chart for each shape and one table, speedups and what each runtime takes to hold."""
    manifest = facts.manifest
    if not manifest.benchmark:
        return section("Latency and throughput", note="No benchmark was recorded.")
    charts = [_chart(facts, at) for at in _shapes(manifest.benchmark)]
    place = (
        f"One request at a time on {manifest.builder.machine}, in random order, after a warm-up."
    )
    return section(
        "Latency and throughput",
        element("div", charts, class_="charts"),
        element("p", LEGEND, class_="legend"),
        folded("Every measured number", _table(facts)),
        _speedups(manifest.speedups),
        _runtimes(facts, manifest.runtimes),
        note=place,
    )


def _shapes(records: Sequence[BenchmarkRecord]) -> list[Shape]:
    return sorted(
        {(each.batch, each.sequence) for each in records}, key=lambda at: (at[0], at[1] or 0)
    )


def _name(record: BenchmarkRecord | RuntimeRecord) -> str:
    return f"{words.runtime(record.runtime)} {record.precision}"


def _is_own(facts: CardFacts, record: BenchmarkRecord | RuntimeRecord) -> bool:
    return (record.runtime, record.precision) == facts.subject


def _chart(facts: CardFacts, at: Shape) -> Markup:
    found = [each for each in facts.manifest.benchmark if (each.batch, each.sequence) == at]
    rows = [
        Row(
            name=_name(each),
            value=each.p50_ms,
            told=words.milliseconds(each.p50_ms),
            mark=each.p95_ms,
            high=each.p99_ms,
            own=_is_own(facts, each),
        )
        for each in sorted(found, key=lambda each: each.p50_ms)
    ]
    along = scale(0, max(row.high or row.value for row in rows), 0, WIDTH, ticks=4)
    title = words.shape(*at)
    return figure(f"{title}, milliseconds", bars(f"Latency at {title}", rows, along))


def _table(facts: CardFacts) -> Markup:
    heads = ("average ms", "p50", "p95", "p99", "rows/s", "repetitions")
    columns = [
        Column(head="shape", kind=None),
        Column(head="runtime", kind=None),
        *(Column(head=head) for head in heads),
    ]
    records = sorted(
        facts.manifest.benchmark, key=lambda each: (each.batch, each.sequence or 0, each.p50_ms)
    )
    return table(columns, [_line(each, own=_is_own(facts, each)) for each in records])


def _line(record: BenchmarkRecord, *, own: bool) -> Line:
    times = (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms)
    cells = (
        words.shape(record.batch, record.sequence),
        _name(record),
        *map(words.plain_milliseconds, times),
        words.rate(record.rows_per_second),
        str(record.repetitions),
    )
    return Line(cells=cells, own=own)


def _speedups(records: Sequence[SpeedupRecord]) -> Markup:
    if not records:
        return Markup("")
    heads = ("ratio", "95 % interval", "control")
    columns = [
        Column(head="shape", kind=None),
        Column(head="compared", kind=None),
        *(Column(head=head) for head in heads),
    ]
    lines = [
        Line(
            cells=(
                words.shape(each.batch, each.sequence),
                f"{each.candidate} against {each.baseline}",
                f"{each.ratio:.2f} ×",
                f"{each.low:.2f} to {each.high:.2f}",
                f"{each.control_low:.2f} to {each.control_high:.2f}",
            )
        )
        for each in records
    ]
    return folded("Speedups in paired rounds", table(columns, lines, caption=SPEEDUPS))


def _runtimes(facts: CardFacts, records: Sequence[RuntimeRecord]) -> Markup:
    if not records:
        return Markup("")
    heads = ("load time", "host memory", "device memory")
    lines = [
        Line(
            cells=(
                _name(each),
                f"{each.load_seconds:.2f} s",
                words.mebibytes(each.host_memory_mib),
                words.mebibytes(each.device_memory_mib),
            ),
            own=_is_own(facts, each),
        )
        for each in records
    ]
    columns = [Column(head="runtime", kind=None), *(Column(head=head) for head in heads)]
    return folded("What each runtime takes to hold", joined(table(columns, lines)))

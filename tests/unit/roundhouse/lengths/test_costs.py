"""Tokens, milliseconds and USD that padding costs."""

from __future__ import annotations

import pytest

from onboarding.manifest import BenchmarkRecord, ProfileRecord
from roundhouse.lengths.costs import (
    Parts,
    Table,
    bucket_costs,
    lock_table,
    profile_of,
    total,
    usd,
)
from roundhouse.lengths.options import PadAs
from roundhouse.lengths.padding import padding

pytestmark = pytest.mark.unit
PROFILES = (ProfileRecord(batch=(1, 4, 8), sequence=(8, 64, 128)),)
LINEAR = Table({(rows, tokens): rows * tokens / 10 for rows in (1, 8) for tokens in (1, 128)})


def parts(rows, longest, count, useful):
    return Parts(rows=rows, longest=longest, count=count, useful=useful)


def test_milliseconds_between_measured_sizes_lie_on_a_straight_line():
    table = Table({(1, 10): 1.0, (1, 20): 3.0, (4, 10): 4.0, (4, 20): 8.0})
    assert table.ms(1, 10) == 1.0 and table.ms(1, 15) == 2.0 and table.ms(4, 15) == 6.0
    assert table.ms(2, 10) == pytest.approx(2.0)


def test_milliseconds_outside_of_what_was_measured():
    table = Table({(2, 10): 1.0, (2, 20): 3.0})
    assert table.ms(1, 5) == 1.0, "not less than the smallest that was measured"
    assert table.ms(2, 40) == 6.0 and table.ms(4, 20) == 6.0, "in proportion"


def test_padding_costs_what_the_engine_takes_longer():
    found = [parts(1, 9, 10, 90), parts(1, 33, 1, 33), parts(2, 10, 5, 60)]
    short, long = bucket_costs(found, padding(PadAs.triton, PROFILES, 8), LINEAR, PROFILES)
    assert (short.tokens, short.texts, short.useful, short.padded) == (16, 20, 150, 320)
    assert short.padding == pytest.approx(1 - 150 / 320)
    assert short.ms == pytest.approx(32.0) and short.needed_ms == pytest.approx(15.0)
    assert short.padding_ms == pytest.approx(17.0) and short.profile == 0
    assert (long.tokens, long.texts, long.padded) == (64, 1, 64)
    whole = total((short, long))
    assert whole.texts == 21 and whole.ms == pytest.approx(38.4) and whole.tokens == 64


def test_single_texts_are_not_padded_on_a_cpu():
    found = [parts(1, 9, 10, 90), parts(2, 10, 5, 60)]
    whole = total(bucket_costs(found, padding(PadAs.longest, PROFILES, 8), LINEAR, PROFILES))
    assert whole.padded == 90 + 100 and whole.padding_ms == pytest.approx(4.0)


def test_rows_that_fill_a_batch_up_are_padding():
    (cost,) = bucket_costs(
        [parts(3, 16, 1, 48)], padding(PadAs.python, PROFILES, 8), LINEAR, PROFILES
    )
    assert cost.padded == 4 * 16 and cost.padding_ms == pytest.approx(1.6)


def test_profile_is_that_of_the_shortest_sequence_that_takes_a_size():
    profiles = (*PROFILES, ProfileRecord(batch=(1, 2, 4), sequence=(8, 16, 32)))
    assert [profile_of(profiles, size) for size in ((4, 32), (5, 32), (1, 33), (9, 8))] == [
        *(1, 0, 0),
        None,
    ]


def record(batch, sequence, p50_ms, precision="fp16"):
    times = dict.fromkeys(("average_ms", "p50_ms", "p95_ms", "p99_ms"), p50_ms)
    return BenchmarkRecord(
        runtime="tensorrt", precision=precision, batch=batch, sequence=sequence,
        rows_per_second=1.0, repetitions=9, **times,
    )  # fmt: skip


def test_lock_knows_the_times_of_its_own_engine_alone():
    records = [record(1, 16, 2.0), record(1, 16, 9.0, "fp32"), record(8, 64, 5.0)]
    table = lock_table(records, ("tensorrt", "fp16"))
    assert table is not None and table.measured == {(1, 16): 2.0, (8, 64): 5.0}
    assert lock_table(records, ("tensorrt", "int8")) is None
    assert lock_table([record(1, None, 1.0)], ("tensorrt", "fp16")) is None


def test_price_that_is_not_known_makes_no_cost():
    assert usd(3_600_000, 2.5) == 2.5 and usd(1.0, None) is None

"""The experiment before a GPU: its bars, its command line, and what it carries."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
import zipfile

import pytest

from benchmarks.h200.bars import bars
from benchmarks.h200.plan import means, plan_request, sums
from benchmarks.h200.transfer import LARGE, unpack

pytestmark = pytest.mark.unit


def load(rate, p50=1.0):
    return {"rate": rate, "p50_ms": p50}


def one_round(numbers, **changes):
    found = {
        "engine rate": load(100_000),
        "engine lone": load(0, 0.2),
        "naive c=1": load(0, 12.0),
        "naive c=64": load(80),
    }
    for name in [*(f"ours {number}" for number in numbers), f"ours {numbers[0]} again"]:
        number = int(name.split()[1])
        found |= {f"{name} c=1": load(0, 0.5), f"{name} c=64": load(2000)}
        found |= {
            f"{name} saturated": load(16_000 * number),
            f"{name} sixteen": load(2_000 * number),
        }
    return found | changes


def verdicts(measures):
    return {
        measure.name: (round(measure.value, 3), measure.verdict)
        for measure in measures
        if measure.bar is not None
    }


def test_experiment_of_a_large_model_is_held_against_its_bars():
    found = verdicts(bars("bert-large", [one_round([1, 2])] * 3, {1: 2, 2: 3}))
    assert found == {
        "bert-large: saturated by single sentences / engine alone (2 HTTP processes, 3 cores)": (
            0.32,
            "missed",
        ),
        "bert-large: saturated by requests of 16 / engine alone (2 HTTP processes, 3 cores)": (
            0.64,
            "missed",
        ),
        "bert-large: 64 clients: ours / naive (1 HTTP process, 2 cores)": (25, "held"),
        "bert-large: one client: p50 above the engine's own (1 HTTP process, 2 cores)": (
            0.3,
            "held",
        ),
        "bert-large: one client: p50 of naive / ours (1 HTTP process, 2 cores)": (24, "held"),
    }


def test_experiment_of_a_small_model_is_held_against_its_bars():
    found = verdicts(bars("minilm", [one_round([1, 2, 4])] * 3, {1: 2, 2: 3, 4: 5}))
    assert found["minilm: requests of 16 / engine alone (4 HTTP processes, 5 cores)"] == (
        1.28,
        "held",
    )
    assert found["minilm: one client: p50 (1 HTTP process, 2 cores)"] == (0.5, "held")
    assert found["minilm: single sentences per core (2 HTTP processes, 3 cores)"] == (
        10666.667,
        "held",
    )
    assert found[
        "minilm: single sentences: growth from 2 to 4 HTTP processes, of linear growth"
    ] == (1, "held")


def test_experiment_that_does_not_grow_misses_the_bar():
    flat = one_round([2, 4], **{"ours 4 saturated": load(32_000)})
    found = verdicts(bars("minilm", [flat], {2: 3, 4: 5}))
    assert found[
        "minilm: single sentences: growth from 2 to 4 HTTP processes, of linear growth"
    ] == (0.5, "missed")


def test_experiment_asks_for_what_the_command_line_says(tmp_path):
    plan = plan_request(
        [str(tmp_path), "minilm", str(tmp_path / "out"), "--set", "ROUNDHOUSE_QUEUE_ROWS=8192"]
    )
    assert plan.processes == (1, 2, 4, 6) and plan.more == {"ROUNDHOUSE_QUEUE_ROWS": "8192"}
    assert plan.pinned(6) == "0-7" and plan.cores(6) == 8 and plan.cores(1) == 2
    assert plan_request([str(tmp_path), "bert-large", "out"]).processes == (1, 2, 4)


def test_experiment_refuses_an_unknown_model(tmp_path, capsys):
    with pytest.raises(SystemExit):
        plan_request([str(tmp_path), "gpt", "out"])
    assert "invalid choice: 'gpt'" in capsys.readouterr().err


def test_carried_parts_make_the_library_again(tmp_path):
    base = transferred(tmp_path, b"x" * 100_000)
    unpack(tmp_path, base)
    assert (tmp_path / "site" / LARGE).read_bytes() == b"x" * 100_000 and (
        tmp_path / "wrk" / "wrk"
    ).is_file()
    assert (tmp_path / "site" / "onnxruntime" / "__init__.py").is_file() and (
        tmp_path / "tokenizer.json"
    ).read_text() == "{}"


def test_refuses_to_unpack_without_every_part(tmp_path):
    base = transferred(tmp_path, b"x" * 100_000)
    sorted(tmp_path.glob("part-*.xz"))[-1].unlink()
    with pytest.raises(ValueError, match="1 parts, not the whole library"):
        unpack(tmp_path, base)


def transferred(folder, library):
    """What `pack` leaves, of a small library: two parts, and a base of one wheel."""
    base = folder / "base"
    (base / "wheels").mkdir(parents=True)
    (base / "wrk").mkdir()
    (base / "wrk" / "wrk").write_text("")
    (base / "tokenizer.json").write_text("{}")
    with zipfile.ZipFile(base / "wheels" / "one-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("one/__init__.py", "")
    with tarfile.open(base / "onnxruntime.tar.xz", "w:xz") as rest:
        rest.addfile(tarfile.TarInfo("onnxruntime/__init__.py"), io.BytesIO())
        place = tarfile.TarInfo("onnxruntime/capi")
        place.type, place.mode = tarfile.DIRTYPE, 0o755
        rest.addfile(place)
    packed = lzma.compress(library)
    (folder / "part-00.xz").write_bytes(packed[: len(packed) // 2])
    (folder / "part-01.xz").write_bytes(packed[len(packed) // 2 :])
    (base / "sha256").write_text(hashlib.sha256(library).hexdigest())
    return base


EXPOSITION = """\
roundhouse_stage_seconds_bucket{le="+Inf",stage="wait"} 4.0
roundhouse_stage_seconds_count{stage="wait"} 4.0
roundhouse_stage_seconds_sum{stage="wait"} 0.008
roundhouse_engine_seconds_count{model="minilm"} 2.0
roundhouse_engine_seconds_sum{model="minilm"} 0.003
roundhouse_request_seconds_count 4.0
roundhouse_request_seconds_sum 0.012
roundhouse_batch_rows_count{model="minilm"} 2.0
roundhouse_batch_rows_sum{model="minilm"} 48.0
roundhouse_connections 1.0
"""


def test_time_of_a_point_is_shown_by_stage_from_the_server_s_own_metrics():
    after = sums(EXPOSITION)
    assert means({}, after) == {"engine": 1.5, "request": 3.0, "rows": 24.0, "wait": 2.0}
    before = {**after, "wait_sum": 0.002, "wait_count": 1.0}
    assert means(before, after) == {"wait": 2.0}

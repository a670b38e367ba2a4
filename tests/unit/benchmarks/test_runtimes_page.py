"""The page of the runtime benchmark is what its JSON says; its numbers."""

import json

import pytest

from benchmarks.runtimes.page import DOCS, MARK, cells, digits, group_rows, page, read

pytestmark = pytest.mark.unit


def row(runtime, p50, **changes):
    values = {
        "model": "minilm",
        "runtime": runtime,
        "precision": "fp32",
        "batch": 2,
        "useful_tokens": 30,
        "padded_tokens": 40,
        "p50_ms": p50,
        "p50_interval": [p50 * 0.9, p50 * 1.2],
        "p99_ms": 2 * p50,
        "rows_per_second": 2e3 / p50,
        "rows_per_second_interval": [1e3 / p50, 3e3 / p50],
        "cosine_worst": 0.99,
    }
    return values | changes


def of_runs(*runs):
    return group_rows([{"rows": rows} for rows in runs])


def test_published_page_is_that_of_the_json():
    written = (DOCS / "benchmarks" / "runtimes.md").read_text(encoding="utf-8")
    assert page(DOCS, written) == written, "run python -m benchmarks.runtimes.page"


def test_a_changed_number_changes_the_page_and_nothing_below_its_mark(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for path in (DOCS / "benchmarks").glob("runtimes-*.json"):
        (tmp_path / "benchmarks" / path.name).write_bytes(path.read_bytes())
    before = page(tmp_path, f"old{MARK} kept")
    file = tmp_path / "benchmarks" / "runtimes-h200-1.json"
    document = json.loads(file.read_text())
    document["rows"][0]["p50_ms"] *= 3
    file.write_text(json.dumps(document))
    after = page(tmp_path, before)
    assert after != before and after.endswith(f"{MARK} kept") and "old" not in after.split()


def test_several_runs_are_one_cell_with_the_span_of_their_intervals():
    groups = of_runs([row("ONNX Runtime", 1.0)], [row("ONNX Runtime", 3.0)])
    ((key, rows),) = groups.items()
    assert cells(key, rows) == [
        *("2 x 20", "ONNX Runtime", "fp32", "2 (0.9 to 3.6)", "4"),
        *("1,330 (333 to 3,000)", "0.75", "20,000", "0.990000"),
    ]


def test_useful_tokens_of_a_server_are_those_of_its_load():
    load = {"clients": 8, "useful_share": 0.5, "useful_tokens_per_row": 10.0}
    ((key, rows),) = of_runs([row("our server", 1.0, **load)]).items()
    assert cells(key, rows)[6:8] == ["0.50", "20,000"]
    ((key, rows),) = of_runs([row("Triton", 1.0, **load | {"useful_share": None})]).items()
    assert cells(key, rows)[6:8] == ["", ""]


def test_a_runtime_that_failed_is_a_row_with_its_reason():
    failed = {"model": "vit", "runtime": "torch.compile", "precision": "fp16", "failed": "no gcc"}
    groups = of_runs([row("PyTorch eager", 1.0), failed])
    assert ["", "torch.compile", "fp16", "no gcc"] in [
        cells(*group)[:4] for group in groups.items()
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (12.34, "12.3"), (99.96, "100"), (123.4, "123"), (45678.0, "45,700")],
)
def test_numbers_have_three_digits(value, text):
    assert digits(value) == text


def test_h200_has_several_runs_of_every_row():
    runs = read(DOCS, "runtimes-h200")
    assert len(runs) >= 2
    assert {len(rows) for rows in group_rows(runs).values()} == {len(runs)}

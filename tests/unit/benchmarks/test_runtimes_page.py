"""The page of the runtime benchmark is what its JSON says; its numbers."""

import json

import pytest

from benchmarks.runtimes.page import DOCS, digits, group_rows, model_table, page, read

pytestmark = pytest.mark.unit

BEGIN, END = "<!-- runtimes: generated -->\n", "<!-- end of runtimes -->"


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
    return {key[1:]: rows for key, rows in group_rows([{"rows": rows} for rows in runs]).items()}


def test_published_page_is_that_of_the_json():
    written = (DOCS / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert page(DOCS, written) == written, "run python -m benchmarks.runtimes.page"


def test_a_changed_number_changes_the_tables_and_nothing_beside_them(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for path in (DOCS / "benchmarks").glob("runtimes-*.json"):
        (tmp_path / "benchmarks" / path.name).write_bytes(path.read_bytes())
    before = page(tmp_path, f"kept\n{BEGIN}old\n{END} kept")
    file = tmp_path / "benchmarks" / "runtimes-h200-1.json"
    document = json.loads(file.read_text())
    document["rows"][0]["p50_ms"] *= 3
    file.write_text(json.dumps(document))
    after = page(tmp_path, before)
    assert after != before and "old" not in after.split()
    assert after.startswith(f"kept\n{BEGIN}") and after.endswith(f"{END} kept")


def test_several_runs_are_one_cell_with_the_span_of_their_intervals():
    groups = of_runs([row("ONNX Runtime", 1.0)], [row("ONNX Runtime", 3.0)])
    found = model_table("MiniLM", groups)
    assert found.columns == ("MiniLM", "precision", "2 x 20: p50 ms", "rows/s", "worst cosine")
    assert found.rows == (("ONNX Runtime", "fp32", "2 (0.9 to 3.6)", "1,330", "0.9900"),)


def test_each_batch_has_columns_and_a_runtime_without_it_dashes():
    rows = [
        row("ONNX Runtime", 1.0),
        row("our server", 1.0, batch=4),
        row("ONNX Runtime", 2.0, batch=4),
    ]
    found = model_table("ViT", of_runs(rows))
    assert found.columns[2::2][:2] == ("2 x 20: p50 ms", "4 x 10: p50 ms")
    assert found.rows[1][:4] == ("**our server**", "fp32", "–", "–")


def test_a_runtime_that_failed_is_a_row_with_its_reason():
    failed = {
        "model": "minilm",
        "runtime": "torch.compile",
        "precision": "fp16",
        "failed": "no gcc",
    }
    found = model_table("MiniLM", of_runs([row("PyTorch eager", 1.0), failed]))
    assert ("torch.compile", "fp16", "–", "–", "no gcc") in found.rows


def test_the_control_is_a_sentence_and_no_row(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    control = row("PyTorch eager", 1.1, precision="fp32 (duplicate control)")
    document = {
        "rows": [row("PyTorch eager", 1.0), control],
        "versions": {"PyTorch": "2"}, "date": "2026-11-23", "machine": "M", "gpu": None,
    }  # fmt: skip
    (tmp_path / "benchmarks" / "runtimes-cpu-1.json").write_text(json.dumps(document))
    text = page(tmp_path, f"{BEGIN}{END}")
    assert "The duplicate's p50 is 1.10 to 1.10 of the first's." in text
    assert text.count("PyTorch eager") == 1


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

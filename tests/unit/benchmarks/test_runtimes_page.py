"""The page of the runtime benchmark is what its JSON says; its numbers and their plot."""

import copy
import json
import xml.etree.ElementTree as ET

import pytest

from benchmarks.runtimes.page import (
    DOCS,
    cells,
    digits,
    files,
    group_rows,
    plot,
    read,
    rows_of_the_gpu_tier,
    tensorrt_section,
)

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


def test_published_page_and_plots_are_those_of_the_json():
    for path, text in files(DOCS).items():
        assert path.read_text(encoding="utf-8") == text, (
            f"run python -m benchmarks.runtimes.page: {path}"
        )


def test_a_changed_number_changes_page_and_plot(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for path in (DOCS / "benchmarks").glob("*-h200-*.json"):
        (tmp_path / "benchmarks" / path.name).write_bytes(path.read_bytes())
    before = {path.name: text for path, text in files(tmp_path).items()}
    file = tmp_path / "benchmarks" / "runtimes-h200-1.json"
    document = json.loads(file.read_text())
    for one in document["rows"]:
        one["p50_ms"] *= 1 if one["runtime"] == "PyTorch eager" else 3
    file.write_text(json.dumps(document))
    after = {path.name: text for path, text in files(tmp_path).items()}
    assert {name for name in before if before[name] != after[name]} == set(before)


def test_rows_of_the_gpu_tier_are_on_the_page_run_by_run(tmp_path):
    folder = tmp_path / "benchmarks" / "h100"
    folder.mkdir(parents=True)
    spread = {"median": 1.25, "low": 1.2, "high": 1.3}
    for day, outcome in (("24", "pass"), ("25", "fail")):
        name = "tests/gpu/test_server_speed.py::test_one_client"
        figures = {"p50_ms": spread, "seconds": {"plan": 80.0}, "bar": "at most 0.4"}
        row = {"row": name, "outcome": outcome, "figures": figures}
        other = {"row": "tests/gpu/test_plans.py::test_x", "outcome": "pass", "figures": {"a": 1}}
        report = {"gpu": "H100", "tensorrt": "10.6.0.26", "date": f"2026-11-{day}T10:00:00"}
        (folder / f"{day}.json").write_text(json.dumps({**report, "rows": [row, other]}))
    (folder / "other.json").write_text("{}")
    rows = rows_of_the_gpu_tier(tmp_path)
    assert [row["outcome"] for _, row in rows] == ["pass", "fail"]
    lines = tensorrt_section(rows).splitlines()
    assert "- run 2: H100, TensorRT 10.6.0.26, 2026-11-25" in lines
    assert lines[-3:] == [
        "| one client | p50 ms | 1.25 (1.2 to 1.3) | 1.25 (1.2 to 1.3) **failed** |",
        "| one client | seconds plan | 80 | 80 **failed** |",
        "| one client | bar | at most 0.4 | at most 0.4 **failed** |",
    ]


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
    assert "torch.compile" not in plot("a machine", groups)


def test_plot_shows_how_many_times_as_fast_as_pytorch():
    first, fast = row("PyTorch eager", 6.0), row("our server", 2.0)
    control = copy.deepcopy(first) | {"precision": "fp32 (duplicate control)"}
    root = ET.fromstring(plot("a machine", of_runs([first, control, fast])))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:2] == ["MiniLM 2 x 20, our server fp32", "3.0"]


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

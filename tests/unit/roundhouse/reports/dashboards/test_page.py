"""Pages and pictures: what is drawn of a dashboard, and what a picture says of what it shows."""

from __future__ import annotations

import re
import struct
import zlib

import pytest

from engine_build.card.charts import Mark
from roundhouse.errors import RoundhouseError
from roundhouse.processes import Outcome
from roundhouse.reports.dashboards.__main__ import main
from roundhouse.reports.dashboards.body import Curve, selected_body
from roundhouse.reports.dashboards.example_locks import with_example_locks
from roundhouse.reports.dashboards.page import graph, markdown_blocks, short_number
from roundhouse.reports.dashboards.pictures import digest, pictures
from roundhouse.reports.dashboards.png import (
    SIGNATURE,
    digest_of,
    with_digest,
    write_screenshot,
)
from stacks.dashboards.environment import dashboard_body
from tests.synth.deployments import one, unlocked, with_endpoint
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")


def png():
    """The smallest one: a grey pixel."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
    chunk = lambda kind, data: (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    )
    return SIGNATURE + b"".join(chunk(*part) for part in parts)


# --- graphs


def draw(*curves, marks=(), **options):
    return graph(curves, marks, (400, 200), (0.0, 86400.0), unit="ms", **options)


def test_curve_begins_at_zero_and_ends_at_the_right():
    values = {300.0 * number: float(number % 3) for number in range(6)} | {86400.0: 3.0}
    svg = draw(Curve(label="p50", points=values))
    places = re.search(r'polyline points="([^"]+)"', svg)[1].split()
    points = [tuple(map(float, place.split(","))) for place in places]
    assert points[0][0] == 52 and points[0][1] > points[2][1]
    # 86400 lies 23 hours after the point before it: a dot of its own, not joined.
    assert re.search(r'circle cx="386"', svg) and len(points) == 6


def test_few_points_are_dots():
    svg = draw(Curve(label="p50", points={300.0 * number: 1.0 for number in range(5)}))
    assert svg.count("<circle") == 5 and "<polyline" not in svg


def test_every_level_lies_within_the_graph():
    svg = draw(
        Curve(label="p50", points={0.0: 1.0}),
        marks=[Mark(value=50.0, label="SLO", color="#d62728")],
    )
    (y,) = re.findall(r'y1="([\d.]+)" y2="[\d.]+" class="mark level"', svg)
    assert 0 < float(y) < 150 and ">SLO<" in svg


def test_labels_of_near_levels_do_not_lie_on_each_other():
    marks = [Mark(value=value, label=f"level {value}") for value in (90.0, 85.0)]
    svg = draw(marks=marks, high=100.0)
    upper, lower = (
        float(re.search(rf'y="([\d.]+)"[^>]*>level {value}', svg)[1]) for value in (90.0, 85.0)
    )
    assert lower - upper > 10


def test_graph_without_values_says_so():
    assert "No data available" in draw(Curve(label="p50", points={}))


@pytest.mark.parametrize(
    ("value", "word"), [(0, "0"), (12.5, "12.5"), (24_000, "24k"), (1_500_000, "1.5M")]
)
def test_ticks_are_short(value, word):
    assert short_number(value) == word


# --- text


def test_markdown_of_ours_becomes_blocks_with_html_tags():
    assert markdown_blocks(
        "# Head & more\n\nSay `code` and **this**.\n\n| a | b |\n| --- | --- |\n| *1* | x |"
    ) == [
        ("h1", [("", "Head & more")]),
        ("p", [("", "Say "), ("code", "code"), ("", " and "), ("strong", "this"), ("", ".")]),
        (
            "table",
            [
                ("th", [[("", "a")], [("", "b")]]),
                ("td", [[("", ""), ("em", "1"), ("", "")], [("", "x")]]),
            ],
        ),
    ]


# --- pages


def test_page_shows_every_widget_of_the_body():
    (environment, own) = pictures([OWN, SHARED], "text-shared", ["sentence-embedder"])
    for picture, body in ((environment, dashboard_body([OWN, SHARED])),):
        for widget in body["widgets"]:
            title = widget["properties"].get("title")
            assert title is None or title in picture.html
    assert (
        "<b>dev-text-shared</b>" in environment.html and "SELECTED_ENDPOINT" not in environment.html
    )
    assert (
        "roundhouse-dev--sentence-embedder" in own.html
        and "drift from the benchmark of sentence-embedder" in own.html
    )
    assert environment.size[0] == 1560 and environment.size[1] > 1500


def test_page_of_variants_names_each():
    several = with_variant(with_variant(OWN, "challenger"), "later", role="shadow")
    (_, own) = pictures([several], "sentence-embedder", ["sentence-embedder"])
    section = own.html.split("Variants: p99 of the model, ms")[1]
    assert all(f">{name}</text>" in section for name in ("AllTraffic", "challenger", "later"))


def test_digest_follows_the_dashboard():
    first, second = (
        pictures([latency_slo_m, SHARED], "text-shared", [])[0].digest
        for latency_slo_m in (OWN, with_endpoint(OWN, latency_slo_ms=51.0))
    )
    assert first != second
    assert digest(selected_body(dashboard_body([OWN, SHARED]), "dev-text-shared")) == first


def test_example_stands_in_for_engines_that_are_not_built():
    (bare,) = (item for item in unlocked("dev") if item.name == "sentence-embedder")
    filled = with_example_locks(bare)
    assert all(target.lock_entry is not None for target in filled.targets)
    assert with_example_locks(OWN) == OWN
    (without,) = pictures([bare], "sentence-embedder", [])
    (measured,) = pictures([OWN], "sentence-embedder", [])
    assert (
        "have an example&#39;s numbers" in without.html and "an example&#39;s" not in measured.html
    )


# --- pictures


def test_picture_carries_one_digest():
    once = with_digest(png(), "a" * 64)
    assert digest_of(png()) is None and digest_of(once) == "a" * 64
    assert (
        digest_of(with_digest(once, "b" * 64)) == "b" * 64
        and with_digest(once, "b" * 64).count(b"tEXt") == 1
    )
    assert once.endswith(png()[-12:])


def test_refuses_what_is_no_png():
    with pytest.raises(ValueError, match="not a PNG"):
        digest_of(b"GIF89a")


def test_browser_is_given_the_pages_size(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "chromium").write_text("", encoding="utf-8")
    (tmp_path / "chromium").chmod(0o755)
    html, target, arguments = tmp_path / "page.html", tmp_path / "page.png", []

    def run(command, on_line=None):
        arguments.extend(command.argv)
        html.with_suffix(".shot.png").write_bytes(png())
        return Outcome(code=0, output="")

    write_screenshot(run, html, target, (1560, 2000), "c" * 64)
    assert "--window-size=1560,2000" in arguments and arguments[-1].startswith("file://")
    assert digest_of(target.read_bytes()) == "c" * 64


def test_refuses_to_draw_without_a_browser(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RoundhouseError, match=r"no chromium or .* is on PATH"):
        write_screenshot(
            lambda command: Outcome(code=0, output=""),
            tmp_path / "p.html",
            tmp_path / "p.png",
            (1, 1),
            "",
        )


def test_refuses_a_browser_that_draws_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "chromium").write_text("", encoding="utf-8")
    (tmp_path / "chromium").chmod(0o755)
    with pytest.raises(RoundhouseError, match=r"drew nothing \(exit code 5\): no display"):
        write_screenshot(
            lambda command: Outcome(code=5, output="no display\n"),
            tmp_path / "p.html",
            tmp_path / "p.png",
            (1, 1),
            "",
        )


# --- the command


def test_command_writes_html_without_a_browser(tmp_path, capsys):
    assert (
        main(
            ["--env", "dev", "--out", str(tmp_path), "--form", "html", "--endpoint", "text-shared"]
        )
        == 0
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "dashboard-environment.html",
        "dashboard-text-shared.html",
    ]
    assert "dashboard-environment.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "dve"], "unknown environment"),
        (
            ["--env", "dev", "--select", "gone"],
            "gone: is no endpoint of environment dev; allowed: sentence-embedder, text",
        ),
        (["--env", "dev", "--endpoint", "gone"], "gone: is no endpoint of environment dev"),
    ],
)
def test_refuses_what_is_not_there(tmp_path, capsys, arguments, message):
    assert main([*arguments, "--out", str(tmp_path / "out"), "--form", "html"]) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()

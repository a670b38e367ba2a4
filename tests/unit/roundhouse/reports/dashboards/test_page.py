"""Pages and pictures: what is drawn of a dashboard, and what a picture says of what it shows."""

from __future__ import annotations

import re
import struct
import zlib

import pytest

from roundhouse.errors import RoundhouseError
from roundhouse.processes import Outcome
from roundhouse.reports.charts import Mark
from roundhouse.reports.dashboards.__main__ import main
from roundhouse.reports.dashboards.body import Curve, selected_body
from roundhouse.reports.dashboards.example_locks import with_example_locks
from roundhouse.reports.dashboards.page import MARKDOWN, graph, short_number
from roundhouse.reports.dashboards.pictures import digest, pictures
from roundhouse.reports.dashboards.png import digest_of, with_digest, write_screenshot
from stacks.dashboards.environment import dashboard_body
from tests.synth.deployments import one, unlocked, with_endpoint
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
DIGEST = "ab12" * 16


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
    mark = Mark(value=50.0, label="SLO", color="#d62728")
    svg = draw(Curve(label="p50", points={0.0: 1.0}), marks=[mark])
    (y,) = re.findall(r'y1="([\d.]+)" y2="[\d.]+" class="mark level"', svg)
    assert 0 < float(y) < 150 and ">SLO<" in svg


def test_labels_of_near_levels_do_not_lie_on_each_other():
    marks = [Mark(value=value, label=f"level {value}") for value in (90.0, 85.0)]
    svg = draw(marks=marks, high=100.0)
    places = [re.search(rf'y="([\d.]+)"[^>]*>{mark.label}', svg) for mark in marks]
    upper, lower = (float(place[1]) for place in places)
    assert lower - upper > 10


def test_graph_without_values_names_the_lack():
    assert "No data available" in draw(Curve(label="p50", points={}))


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12.5, "12.5"), (24_000, "24k"), (1_500_000, "1.5M")]
)
def test_ticks_are_short(value, text):
    assert short_number(value) == text


def test_markdown_becomes_html_whose_text_is_escaped():
    html = MARKDOWN.render(
        "# Head & <b>more</b>\n\nSay `code`.\n\n| a | b |\n| - | - |\n| *1* | x |"
    )
    assert "<h1>Head &amp; &lt;b&gt;more&lt;/b&gt;</h1>" in html and "<code>code</code>" in html
    assert "<th>a</th>" in html and "<td><em>1</em></td>" in html


@pytest.fixture(scope="module")
def two_pictures():
    """Return the pictures of two endpoints' dashboards: the environment's and the first one's."""
    return pictures([OWN, SHARED], "text-shared", ["sentence-embedder"])


def test_page_shows_every_widget_of_the_body(two_pictures):
    environment, own = two_pictures
    for widget in dashboard_body([OWN, SHARED])["widgets"]:
        assert widget["properties"].get("title", "") in environment.html
    assert "<b>dev-text-shared</b>" in environment.html
    assert "SELECTED_ENDPOINT" not in environment.html
    assert "roundhouse-dev--sentence-embedder" in own.html
    assert "drift from the benchmark of sentence-embedder" in own.html
    assert environment.size[0] == 1560 and environment.size[1] > 1500


def test_page_of_variants_names_each():
    several = with_variant(with_variant(OWN, "challenger"), "later", role="shadow")
    _, own = pictures([several], "sentence-embedder", ["sentence-embedder"])
    section = own.html.split("Variants: p99 of the model, ms")[1]
    assert all(f">{name}</text>" in section for name in ("AllTraffic", "challenger", "later"))


def test_digest_follows_the_dashboard(two_pictures):
    changed = with_endpoint(OWN, latency_slo_ms=51.0)
    first, second = two_pictures[0].digest, pictures([changed, SHARED], "text-shared", [])[0].digest
    assert first != second
    assert digest(selected_body(dashboard_body([OWN, SHARED]), "dev-text-shared")) == first


def test_example_stands_in_for_engines_that_are_not_built(two_pictures):
    (bare,) = (item for item in unlocked("dev") if item.name == "sentence-embedder")
    assert all(target.lock_entry is not None for target in with_example_locks(bare).targets)
    assert with_example_locks(OWN) == OWN
    (without,) = pictures([bare], "sentence-embedder", [])
    measured, _ = two_pictures
    assert "have an example&#39;s numbers" in without.html
    assert "an example&#39;s" not in measured.html


def png():
    """Return the smallest PNG: a grey pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0\0")), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_picture_carries_a_digest_before_its_end():
    picture = with_digest(png(), DIGEST)
    assert digest_of(png()) is None and digest_of(picture) == DIGEST
    assert picture.startswith(png()[:-12]) and picture.endswith(png()[-12:])
    (length,) = struct.unpack(">I", picture[len(png()) - 12 :][:4])
    assert len(picture) == len(png()) + 12 + length


@pytest.fixture
def screenshot(tmp_path, monkeypatch):
    """Write a screenshot of a page with a browser that ends with a code, drawing or not."""
    monkeypatch.setenv("PATH", str(tmp_path))
    html, target, commands = tmp_path / "page.html", tmp_path / "page.png", []

    def write(*, code=0, has_browser=True):
        if has_browser:
            (tmp_path / "chromium").touch(mode=0o755)

        def run(command, on_line=None):
            commands.append(command.argv)
            if code == 0:
                html.with_suffix(".shot.png").write_bytes(png())
            return Outcome(code=code, output="no display\n")

        write_screenshot(run, html, target, (1560, 2000), DIGEST)
        return commands[0], target.read_bytes()

    return write


def test_browser_gets_the_pages_size(screenshot):
    arguments, picture = screenshot()
    assert "--window-size=1560,2000" in arguments and arguments[-1].startswith("file://")
    assert digest_of(picture) == DIGEST


@pytest.mark.parametrize(
    ("browser", "message"),
    [
        ({"has_browser": False}, r"no chromium or .* is on PATH"),
        ({"code": 5}, r"drew nothing \(exit code 5\): no display"),
    ],
)
def test_refuses_to_draw_without_a_browser_that_draws(screenshot, browser, message):
    with pytest.raises(RoundhouseError, match=message):
        screenshot(**browser)


def test_command_writes_html_without_a_browser(tmp_path, capsys):
    options = ["--out", str(tmp_path), "--form", "html", "--endpoint", "text-shared"]
    assert main(["--env", "dev", *options]) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["dashboard-environment.html", "dashboard-text-shared.html"]
    assert "dashboard-environment.html" in capsys.readouterr().out


NO_ENDPOINT = "gone: is no endpoint of environment dev; allowed: sentence-embedder, text"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "dve"], "unknown environment"),
        (["--env", "dev", "--select", "gone"], NO_ENDPOINT),
        (["--env", "dev", "--endpoint", "gone"], NO_ENDPOINT),
    ],
)
def test_refuses_an_environment_or_endpoint_that_is_not_there(tmp_path, capsys, arguments, message):
    assert main([*arguments, "--out", str(tmp_path / "out"), "--form", "html"]) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()

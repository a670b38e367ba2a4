"""What benchmarks of servers are made of.

Requests, wrk's output, answers, rounds, an experiment's bars.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
from pathlib import Path

import pytest

from benchmarks.measure import Bar
from benchmarks.servers.candidates import triton
from benchmarks.servers.fixtures import Fixtures, rounds_wanted
from benchmarks.servers.harness import Point, Starts, points, ratio, rounds, spread
from benchmarks.servers.running_server import Candidate, running
from benchmarks.servers.workload import binary, groups, kserve, least_cosine, plain, vectors
from benchmarks.servers.wrk import Wrk, read_load, requests_file, wrk_program
from benchmarks.soak import Sample, growth, mixed_requests
from benchmarks.trees import MODEL
from onboarding.serve_environment import serve_environment
from roundhouse.dev.recipes import BENCH, RECIPES
from roundhouse.paths import Paths
from roundhouse.processes import Outcome

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
NUMBERS = {
    "requests": 10,
    "seconds": 2.0,
    "p50_ms": 1.0,
    "p90_ms": 2.0,
    "p99_ms": 3.0,
    "max_ms": 4.0,
}
FAULTS = {"refused": 0, "socket_errors": 0, "timeouts": 0, "statuses": []}


def text(**changes):
    return "noise\nROUNDHOUSE " + json.dumps(NUMBERS | FAULTS | changes) + "\n"


def test_request_is_whole_http():
    wire = kserve(["a\nü"]).wire()
    header, _, body = wire.partition(b"\r\n\r\n")
    assert (
        header.startswith(b"POST /invocations HTTP/1.1\r\nHost: ")
        and f"Content-Length: {len(body)}".encode() in header
    )
    assert json.loads(body)["inputs"][0]["data"] == ["a\nü"]


def test_binary_request_says_where_its_header_ends():
    request = binary(["ab", "ü"])
    size = int(request.content_type.rpartition("=")[2])
    tensor = json.loads(request.body[:size])["inputs"][0]
    assert (
        tensor["shape"] == [2, 1]
        and tensor["parameters"]["binary_data_size"] == len(request.body) - size
    )
    assert request.body[size:] == struct.pack("<I", 2) + b"ab" + struct.pack("<I", 2) + "ü".encode()


def test_groups_take_texts_in_turn():
    assert groups(["a", "b", "c"], 2, 3) == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_requests_file_tells_each_size(tmp_path):
    wire = plain(["a"]).wire()
    assert requests_file([plain(["a"])], tmp_path / "r").read_bytes() == b"%d\n" % len(wire) + wire


def test_load_is_read_from_the_marked_line():
    load = read_load(text(), "wrk")
    assert load.rate == 5 and load.clean


@pytest.mark.parametrize(
    "fault", [{"refused": 1}, {"socket_errors": 1}, {"timeouts": 1}, {"requests": 0}]
)
def test_load_with_a_fault_is_not_clean(fault):
    assert not read_load(text(**fault), "wrk").clean


def test_refuses_output_without_numbers():
    with pytest.raises(ValueError, match="unable to connect"):
        read_load("unable to connect to 127.0.0.1", "wrk")


def test_refuses_to_measure_without_wrk(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="apt-get install wrk"):
        wrk_program(tmp_path, lambda command: Outcome(code=0, output=""))


def test_wrk_is_pinned_and_has_no_more_threads_than_clients(tmp_path):
    wrk = Wrk(
        program="wrk",
        script=tmp_path / "s",
        run=lambda command, on_line=None: Outcome(code=0, output=""),
        threads=6,
        cores="8-15",
    )
    argv = wrk.command(tmp_path / "r", port=1, connections=2, seconds=3).argv
    assert (
        argv[:3] == ("taskset", "-c", "8-15")
        and argv[argv.index("-t") + 1] == "2"
        and argv[-1] == str(tmp_path / "r")
    )


def test_vectors_are_read_from_every_protocol():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    flat = [1.0, 2.0, 3.0, 4.0]
    assert (
        vectors(json.dumps({"outputs": [{"data": flat}]}).encode(), "application/json", 2) == rows
    )
    assert vectors(json.dumps({"outputs": rows}).encode(), "application/json", 2) == rows
    packed = b"{}" + struct.pack("<4f", *flat)
    assert vectors(packed, "application/x;json-header-size=2", 2) == rows


def test_refuses_an_answer_that_is_not_so_many_rows():
    with pytest.raises(ValueError, match="3 numbers cannot be 2 rows"):
        vectors(b'{"outputs": [[1, 2, 3]]}', "application/json", 2)


def test_least_cosine_is_of_the_worst_pair():
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [0, 1]]) == 1
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [1, 0]]) == 0


def test_rounds_run_everyone_in_changing_orders():
    order = []
    tests = {name: lambda name=name: order.append(name) or len(order) for name in "abcd"}
    found = rounds(tests, 6, say=lambda line: None)
    assert all(set(one) == set("abcd") for one in found)
    assert len({tuple(order[start : start + 4]) for start in range(0, 24, 4)}) > 1


def test_ratio_pairs_by_round():
    found = ratio([{"a": 2, "b": 1}, {"a": 9, "b": 3}, {"a": 8, "b": 2}], "a", "b")
    assert (found.median, found.low, found.high) == (3, 2, 4)


def test_spread_of_one_round_is_that_round():
    assert spread([5]).low == spread([5]).high == spread([5]).median == 5


def test_starts_are_held_against_their_bars():
    found = Starts(ready_seconds=(0.5, 3.0, 0.6), memory_mb=(100, 251)).measures("ours", "make it")
    assert [(result.value, result.verdict) for result in found] == [(0.6, "held"), (251, "missed")]


def test_points_are_of_the_median_round():
    one = Point(rate=1, busy_p50_ms=2, busy_p99_ms=3, busy_cpu_ms=4, lone_p50_ms=5)
    assert [item.value for item in points([one, one, one], "ours", "make it")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("text", ["0", "-1", "two"])
def test_refuses_rounds_that_are_no_count(text):
    with pytest.raises(ValueError, match="whole number from 1 up"):
        rounds_wanted({"BENCH_ROUNDS": text}, 5)


def test_rounds_have_a_default():
    assert rounds_wanted({}, 5) == 5 and rounds_wanted({"BENCH_ROUNDS": "2"}, 5) == 2


SERVER = """
import http.server, os, sys
class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *arguments): pass
os.fork() if "fork" in sys.argv else None
http.server.HTTPServer.allow_reuse_port = True
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answering).serve_forever()
"""


def candidate(tmp_path, program, *more):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Candidate(
        name="one",
        argv=(sys.executable, "-c", program, str(port), *more),
        port=port,
        folder=tmp_path,
    )


def test_server_is_awaited_weighed_and_ended(tmp_path):
    with running(candidate(tmp_path, SERVER), tmp_path / "log") as server:
        assert server.ready_seconds > 0 and server.memory_mb() > 5 and server.processes() == 1
        assert server.cpu_seconds() > 0
        assert server.ask(kserve(["a"]))[0] == 501
    assert server.process.poll() is not None


def test_refuses_a_server_that_ends(tmp_path):
    with (
        pytest.raises(ValueError, match="one is not ready, it ended with 3: no engine"),
        running(
            candidate(tmp_path, "import sys; print('no engine'); sys.exit(3)"), tmp_path / "log"
        ),
    ):
        pass


def test_soak_mixes_work_with_wrong_requests():
    found = mixed_requests([f"text {number}" for number in range(200)])
    assert len({one.wire() for one in found}) > 80
    assert {one.method for one in found} == {"GET", "POST"} and {one.path for one in found} == {
        "/invocations",
        "/nowhere",
        "/ping",
    }
    packed = [one for one in found if one.headers]
    assert packed and all(json.loads(gzip.decompress(one.body))["inputs"] for one in packed)


def test_soak_judges_growth_from_the_first_quarter_on():
    samples = [
        Sample(requests=count, memory_mb=mb)
        for count, mb in ((100_000, 50), (300_000, 100), (1_080_000, 104))
    ]
    share, grown, *_ = growth(samples)
    assert share.value == pytest.approx(1.04) and grown.value == pytest.approx(4e6 / 2**20)
    assert share.bar == Bar(kind="at most", limit=1.05) and (share.verdict, grown.verdict) == (
        "held",
        "held",
    )


def test_triton_is_started_with_the_environment_that_endpoints_give_it(tmp_path):
    at = Paths(tree=tmp_path, code=tmp_path, build=tmp_path)
    candidate = triton(Fixtures(at=at, place=tmp_path, archive=tmp_path, texts=()))
    assert serve_environment(MODEL).items() <= candidate.environment.items()


def test_environment_of_the_others_is_created_only_when_needed():
    assert BENCH not in RECIPES and (ROOT / BENCH.inputs[0]).is_file()

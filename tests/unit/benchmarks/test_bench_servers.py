"""Benchmarks of servers: requests, wrk's output, responses, rounds, servers and the soak."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from pathlib import Path

import pytest

from benchmarks.servers.candidates import triton
from benchmarks.servers.fixtures import Fixtures
from benchmarks.servers.harness import Point, points, ratio, round_measures, rounds, start_measures
from benchmarks.servers.running_server import Candidate, free_port, start_server
from benchmarks.servers.workload import binary, groups, kserve, least_cosine, plain, vectors
from benchmarks.servers.wrk import Wrk, read_load, sentence_requests, wrk_program
from benchmarks.soak import Sample, growth, mixed_requests
from benchmarks.trees import MODEL
from onboarding.serve_environment import serve_environment
from roundhouse.dev.recipes import BENCH, RECIPES
from roundhouse.paths import Paths
from roundhouse.processes import Outcome

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
NUMBERS = {"requests": 10, "seconds": 2, "p50_ms": 1, "p90_ms": 2, "p99_ms": 3, "max_ms": 4}
FAULTS = {"refused": 0, "socket_errors": 0, "timeouts": 0, "statuses": []}


def output(**changes):
    return "noise\nROUNDHOUSE " + json.dumps(NUMBERS | FAULTS | changes) + "\n"


def test_request_is_whole_http():
    header, _, body = kserve(["a\nü"]).wire().partition(b"\r\n\r\n")
    assert header.startswith(b"POST /invocations HTTP/1.1\r\nHost: ")
    assert f"Content-Length: {len(body)}".encode() in header
    assert json.loads(body)["inputs"][0]["data"] == ["a\nü"]


def test_binary_request_names_the_size_of_its_header():
    request = binary(["ab", "ü"])
    size = int(request.content_type.rpartition("=")[2])
    tensor = json.loads(request.body[:size])["inputs"][0]
    assert tensor["shape"] == [2, 1]
    assert tensor["parameters"]["binary_data_size"] == len(request.body) - size
    assert request.body[size:] == struct.pack("<I", 2) + b"ab" + struct.pack("<I", 2) + "ü".encode()


def test_groups_take_texts_in_turn():
    assert groups(["a", "b", "c"], 2, 3) == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_requests_file_holds_the_size_of_each(tmp_path):
    content = sentence_requests(["a"], tmp_path / "r", plain).read_bytes()
    wire = plain(["a"]).wire()
    assert content == b"%d\n" % len(wire) + wire


def test_load_is_read_from_the_marked_line():
    load = read_load(output(), "wrk")
    assert load.rate == 5 and load.clean


@pytest.mark.parametrize(
    "fault", [{"refused": 1}, {"socket_errors": 1}, {"timeouts": 1}, {"requests": 0}]
)
def test_load_with_a_fault_is_not_clean(fault):
    assert not read_load(output(**fault), "wrk").clean


def test_refuses_output_without_numbers():
    with pytest.raises(ValueError, match="unable to connect"):
        read_load("unable to connect to 127.0.0.1", "wrk")


def no_process(command, on_line=None):
    return Outcome(code=0, output="")


def test_refuses_to_measure_without_wrk(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="apt-get install wrk"):
        wrk_program(tmp_path, no_process)


def test_wrk_is_pinned_and_has_no_more_threads_than_clients(tmp_path):
    wrk = Wrk(program="wrk", script=tmp_path / "s", run=no_process, threads=6, cores="8-15")
    argv = wrk.command(tmp_path / "r", port=1, connections=2, seconds=3).argv
    assert argv[:3] == ("taskset", "-c", "8-15") and argv[-1] == str(tmp_path / "r")
    assert argv[argv.index("-t") + 1] == "2"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"outputs": [{"data": [1.0, 2.0, 3.0, 4.0]}]}', "application/json"),
        (b'{"outputs": [[1.0, 2.0], [3.0, 4.0]]}', "application/json"),
        (b"{}" + struct.pack("<4f", 1, 2, 3, 4), "application/x;json-header-size=2"),
    ],
    ids=["kserve", "plain", "binary"],
)
def test_vectors_are_read_from_every_protocol(body, content_type):
    assert vectors(body, content_type, 2) == [[1.0, 2.0], [3.0, 4.0]]


def test_refuses_a_response_that_is_not_so_many_rows():
    with pytest.raises(ValueError, match="3 numbers cannot be 2 rows"):
        vectors(b'{"outputs": [[1, 2, 3]]}', "application/json", 2)


def test_least_cosine_is_of_the_worst_pair():
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [0, 1]]) == 1
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [1, 0]]) == 0


def test_rounds_run_everyone_in_changing_orders():
    order = []
    tests = {name: lambda name=name: order.append(name) or len(order) for name in "abcd"}
    results = rounds(tests, 6, say=lambda line: None)
    assert all(set(result) == set("abcd") for result in results)
    assert len({tuple(order[start : start + 4]) for start in range(0, 24, 4)}) > 1


def point(rate):
    return Point(rate=rate, busy_p50_ms=2, busy_p99_ms=3, busy_cpu_ms=4, lone_p50_ms=5)


def test_ratio_is_taken_within_a_round():
    results = [{"a": point(a), "b": point(b)} for a, b in ((2, 1), (9, 3), (8, 2))]
    (measure,) = round_measures(results, [("a / b", "x", ratio("a", "b"), None)])
    assert (measure.value, measure.low, measure.high) == (3, 2, 4)


def test_points_are_of_the_median_round():
    measures = points([{"a": point(rate)} for rate in (3, 1, 2)], "a", "ours")
    assert [measure.value for measure in measures] == [2, 2, 3, 4, 5]


def test_starts_are_held_against_their_bars():
    measures = start_measures("ours", (0.5, 3.0, 0.6), (100, 251, 90))
    assert [(measure.value, measure.verdict) for measure in measures] == [
        (0.6, "held"),
        (251, "missed"),
    ]


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *arguments): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def candidate(tmp_path, program):
    port = free_port()
    argv = (sys.executable, "-c", program, str(port))
    return Candidate(name="one", argv=argv, port=port, folder=tmp_path)


def test_server_is_measured_once_ready_and_ended(tmp_path):
    with start_server(candidate(tmp_path, SERVER), tmp_path / "log") as begun:
        server = begun.ready()
        assert server.ready_seconds > 0 and server.memory_mb() > 5 and server.cpu_seconds() > 0
        assert server.candidate.request(kserve(["a"]))[0] == 501
    assert server.process.poll() is not None


def test_refuses_a_server_that_ends(tmp_path):
    program = candidate(tmp_path, "import sys; print('no engine'); sys.exit(3)")
    with (
        pytest.raises(ValueError, match="one is not ready, it ended with 3: no engine"),
        start_server(program, tmp_path / "log") as begun,
    ):
        begun.ready()


def test_soak_mixes_work_with_wrong_requests():
    requests = mixed_requests([f"text {number}" for number in range(200)])
    assert len({request.wire() for request in requests}) > 80
    assert {request.method for request in requests} == {"GET", "POST"}
    assert {request.path for request in requests} == {"/invocations", "/nowhere", "/ping"}
    packed = [request for request in requests if request.headers]
    assert packed and all(json.loads(gzip.decompress(one.body))["inputs"] for one in packed)


def test_soak_measures_growth_from_the_first_quarter_on():
    counts = ((100_000, 50), (300_000, 100), (1_080_000, 104))
    share, mib, *_ = growth([Sample(requests=count, memory_mb=mb) for count, mb in counts])
    assert share.value == pytest.approx(1.04) and mib.value == pytest.approx(4e6 / 2**20)
    assert str(share.bar) == "at most 1.05" and (share.verdict, mib.verdict) == ("held", "held")


def test_triton_starts_with_the_environment_that_endpoints_give_it(tmp_path):
    paths = Paths(tree=tmp_path, code=tmp_path, build=tmp_path)
    candidate = triton(Fixtures(paths=paths, folder=tmp_path, archive=tmp_path, texts=()))
    assert serve_environment(MODEL).items() <= candidate.environment.items()


def test_environment_of_the_other_servers_is_created_only_when_needed():
    assert BENCH not in RECIPES and (ROOT / BENCH.inputs[0]).is_file()

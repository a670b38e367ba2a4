"""Requests, wrk's output, responses, and servers as benchmarks start them."""

from __future__ import annotations

import json
import struct
import sys

import pytest

from benchmarks.servers.candidates import triton
from benchmarks.servers.fixtures import MODEL
from benchmarks.servers.running_server import Candidate, free_port, start_server
from benchmarks.servers.workload import binary, kserve, least_cosine, vectors
from benchmarks.servers.wrk import read_load, requests_file, wrk_program
from onboarding.serve_environment import serve_environment
from roundhouse.processes import Outcome

pytestmark = pytest.mark.unit

NUMBERS = {"requests": 10, "seconds": 2, "p50_ms": 1, "p99_ms": 3}
FAULTS = {"refused": 0, "socket_errors": 0, "timeouts": 0}


def output(**changes):
    return "noise\nROUNDHOUSE " + json.dumps(NUMBERS | FAULTS | changes) + "\n"


def test_requests_file_holds_whole_http_with_the_size_of_each(tmp_path):
    wire = kserve(["a\nü"]).wire()
    header, _, body = wire.partition(b"\r\n\r\n")
    assert header.startswith(b"POST /invocations HTTP/1.1\r\nHost: ")
    assert f"Content-Length: {len(body)}".encode() in header
    assert json.loads(body)["inputs"][0]["data"] == ["a\nü"]
    content = requests_file([kserve(["a\nü"])], tmp_path / "r").read_bytes()
    assert content == b"%d\n" % len(wire) + wire


def test_binary_request_names_the_size_of_its_header():
    request = binary(["ab", "ü"])
    size = int(request.content_type.rpartition("=")[2])
    tensor = json.loads(request.body[:size])["inputs"][0]
    assert tensor["shape"] == [2, 1]
    assert tensor["parameters"]["binary_data_size"] == len(request.body) - size
    assert request.body[size:] == struct.pack("<I", 2) + b"ab" + struct.pack("<I", 2) + "ü".encode()


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


def test_refuses_to_measure_without_wrk(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="apt-get install wrk"):
        wrk_program(tmp_path, lambda command, on_line=None: Outcome(code=0, output=""))


def test_vectors_are_the_rows_of_a_response():
    assert vectors(b'{"outputs": [{"data": [1.0, 2.0, 3.0, 4.0]}]}', 2) == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="3 numbers cannot be 2 rows"):
        vectors(b'{"outputs": [{"data": [1, 2, 3]}]}', 2)


def test_least_cosine_is_of_the_worst_pair():
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [0, 1]]) == 1
    assert least_cosine([[1, 0], [0, 2]], [[3, 0], [1, 0]]) == 0


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
    with start_server(candidate(tmp_path, SERVER), tmp_path / "log") as server:
        assert server.ready_seconds > 0 and server.memory_mb() > 5 and server.cpu_seconds() > 0
        assert server.candidate.request(kserve(["a"]))[0] == 501
    assert server.process.poll() is not None


def test_refuses_a_server_that_ends(tmp_path):
    program = candidate(tmp_path, "import sys; print('no engine'); sys.exit(3)")
    with (
        pytest.raises(ValueError, match="one is not ready, it ended with 3: no engine"),
        start_server(program, tmp_path / "log"),
    ):
        pass


def test_triton_starts_with_the_environment_that_endpoints_give_it(tmp_path):
    assert serve_environment(MODEL).items() <= triton(tmp_path, tmp_path).environment.items()

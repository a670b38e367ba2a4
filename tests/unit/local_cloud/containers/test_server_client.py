"""HTTP to a container's server over TCP."""

from __future__ import annotations

import socket
import threading

from local_cloud.containers.server_client import ServerClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_body_waits_for_no_acknowledgement_of_its_head():
    sockets = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def connect(seconds):
            sockets.append(socket.create_connection(listener.getsockname(), seconds))
            return sockets[-1]

        def answer():
            connected, _ = listener.accept()
            with connected:
                received = b""
                while not received.endswith(b"body"):
                    received += connected.recv(65_536)
                connected.sendall(ANSWER)

        thread = threading.Thread(target=answer)
        thread.start()
        client = ServerClient(connect)
        assert client.request("POST", "/invocations", b"body").body == b"ok"
        assert sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.close()
        thread.join()

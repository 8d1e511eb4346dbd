"""Sources and sinks of traffic, run as programs of their own with the standard library only: `traffic.py WHAT ...`."""

import json
import select
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

_BLOCK = bytes(1 << 16)
_SAMPLE_S = 0.01


def sink(address: str) -> None:
    """Take what comes, and say when a connection begins to bring something; when told to stop, who had sent how much when."""
    server = socket.create_server((address, 0))
    print(server.getsockname()[1], flush=True)
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    peers: dict[socket.socket, tuple[str, int]] = {}
    while True:
        if select.select([sys.stdin], (), (), 0)[0]:
            print(json.dumps(seen), flush=True)
            return
        for one in select.select([server, *peers], (), (), _SAMPLE_S)[0]:
            if one is server:
                connection, peer = server.accept()
                connection.setblocking(False)
                peers[connection] = (f"{peer[0]}:{peer[1]}", 0)
                continue
            (name, before), got = peers[one], b""
            with suppress(ConnectionError):
                got = one.recv(1 << 18)
            peers[one] = (name, before + len(got))
            if not got:
                one.close()
                del peers[one]
            elif not seen[name]:
                print("begun", flush=True)
                seen[name].append((time.monotonic(), before + len(got)))
            elif time.monotonic() > seen[name][-1][0] + _SAMPLE_S:
                seen[name].append((time.monotonic(), before + len(got)))


def source(address: str, port: str, congestion: str) -> None:
    """Send as much as goes, with a congestion control that is named, or the system's own where that is `-`."""
    with socket.socket() as connection:
        if congestion != "-":
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        connection.connect((address, int(port)))
        with suppress(ConnectionError):
            while True:
                connection.sendall(_BLOCK)


def echo(address: str) -> None:
    """Send every datagram back."""
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind((address, 0))
        print(server.getsockname()[1], flush=True)
        while True:
            data, peer = server.recvfrom(2048)
            server.sendto(data, peer)


def ping(address: str, port: str, count: str, period_s: str) -> None:
    """Send datagrams one after the other, and print the ms that each took there and back; null where it was lost."""
    took_ms: list[float | None] = []
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect((address, int(port)))
        client.settimeout(0.25)
        for number in range(int(count)):
            begun = time.monotonic()
            client.send(str(number).encode())
            answer = b""
            with suppress(TimeoutError):
                while answer != str(number).encode():
                    answer = client.recv(2048)
            took_ms.append((time.monotonic() - begun) * 1000 if answer == str(number).encode() else None)
            time.sleep(max(0.0, begun + float(period_s) - time.monotonic()))
    print(json.dumps(took_ms), flush=True)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"sink": sink, "source": source, "echo": echo, "ping": ping}
    programs[sys.argv[1]](*sys.argv[2:])

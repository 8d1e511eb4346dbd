"""A connection through a proxied cell: two sockets, and the bearers between them."""

import asyncio
import socket
import struct

from edge.slices.emulate.carrier import Bearer, Carrier

_RECEIVE_BYTES = 1 << 16  # what the system takes in ahead of us is a queue that we do not see
_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: closing tells the peer at once that it is broken


class End(asyncio.Protocol):
    """One of the two sockets of a connection: the terminal's, or the one to the target."""

    def __init__(self, bearer: Bearer, carrier: Carrier, ends: "set[End]") -> None:
        """Begin without a socket.

        Args:
            bearer: Carries what this end reads.
            carrier: That of the bearer.
            ends: Holds all ends of the terminal that have a socket.
        """
        self._bearer, self._carrier, self._ends = bearer, carrier, ends
        self._partner: End | None = None
        self._transport: asyncio.Transport | None = None
        self._choked = self._read_all = self._wrote_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a socket, and read nothing until the other side is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()
        wire = transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends.add(self)
        self._bearer.on_room.add(self._flow)

    def join(self, partner: "End") -> None:
        """Begin to read: what comes is for a partner."""
        self._partner = partner
        self._flow()

    def data_received(self, data: bytes) -> None:
        """Queue it for the air."""
        self._put(data)

    def eof_received(self) -> bool:
        """Queue the end behind what came before it; return whether the other way may go on."""
        self._read_all = True
        self._put(None)
        return not self._wrote_all

    def connection_lost(self, exc: Exception | None) -> None:
        """Break the other side too, unless both ways had come to their end."""
        self._transport = None
        self._ends.discard(self)
        self._bearer.on_room.discard(self._flow)
        if self._partner and not (self._read_all and self._wrote_all):
            self._partner.abort()

    def pause_writing(self) -> None:
        """Have the other side stop reading: here it is not taken."""
        self._choked = True
        if self._partner:
            self._partner._flow()

    def resume_writing(self) -> None:
        """Have the other side read on."""
        self._choked = False
        if self._partner:
            self._partner._flow()

    @property
    def gone(self) -> bool:
        """Return whether there is no socket, or it is being closed."""
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """Break the connection: no polite end, which would look like one that was meant."""
        if self._transport:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def arrive(self, data: bytes | None) -> None:
        """Write what came through the air."""
        if self._transport is None or self.gone:
            return
        if data is not None:
            self._transport.write(data)
            return
        self._wrote_all = True
        if self._read_all:
            self._transport.close()
        else:
            self._transport.write_eof()

    def _put(self, data: bytes | None) -> None:
        assert self._partner is not None
        was_idle = not self._bearer.active
        self._bearer.add(data, self._partner.arrive)
        self._flow()
        if was_idle:
            self._carrier.settle()

    def _flow(self) -> None:
        """Read on, or stop reading while there is no room."""
        if self._partner is None or self._transport is None or self.gone or self._read_all:
            return
        if self._bearer.full or self._partner._choked:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

"""A cell without root: every terminal has a port of this machine, and what passes it is slowed as its slice says.

Only what TCP carries is shaped, and TCP itself ends here: slow start does not see the radio's delay.
"""

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from edge.slices.emulate.carrier import Bearer, Carrier
from edge.slices.emulate.cell import WAYS, CellPlan
from edge.slices.emulate.connection import End
from edge.slices.emulate.relay import Air
from edge.slices.profile import Direction, RrmRatio
from fedslice.core.errors import RunError, UsageError

HOST = "127.0.0.1"
MOST_TERMINALS = 300  # the loop waits by select, to the microsecond, and select knows 1024 files


class ProxyCell:
    """A cell that lives as long as its `with` block, in a thread of its own.

    Rates are as on Ethernet: `TCP_SHARE` of them is payload, so that a plan gives here what it gives in namespaces.
    """

    def __init__(self, plan: CellPlan, target: tuple[str, int], *, seed: int = 0) -> None:
        """Keep what to make.

        Args:
            plan: The slices, the terminals and the rates; each way also takes its slice's `delay_ms`.
            target: Host and port that every terminal is connected to.
            seed: Of jitter and losses.

        Raises:
            UsageError: There are more terminals than `MOST_TERMINALS`.
        """
        if len(plan.terminals) > MOST_TERMINALS:
            raise UsageError(f"a proxied cell has at most {MOST_TERMINALS} terminals; given: {len(plan.terminals)}")
        self.plan = plan
        self._target, draw = target, random.Random(seed)
        self._bearers = {
            (name, way): Bearer(name, Air(delay_ms=plan.home(name).side(way).delay_ms), draw)
            for name in plan.terminals
            for way in WAYS
        }
        self._carriers: dict[Direction, Carrier] = {
            way: Carrier(plan, way, [self._bearers[name, way] for name in plan.terminals]) for way in WAYS
        }
        self._ends: dict[str, set[End]] = {name: set() for name in plan.terminals}
        self._ports: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._joining: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        """Open the ports.

        Raises:
            RunError: The system gives none.
        """
        self._loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy-cell", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except OSError as error:
            self.close()
            raise RunError(f"a proxied cell could not open its ports: {error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all ports and connections."""
        self.close()

    def close(self) -> None:
        """Close all ports and connections, and end the thread; a second time does nothing."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, terminal: str) -> tuple[str, int]:
        """Return the host and port at which a terminal finds the target.

        Raises:
            UsageError: There is no such terminal.
        """
        self.plan.index(terminal)
        return HOST, self._ports[terminal]

    def reslice(self, ratios: Mapping[str, RrmRatio], ways: Sequence[Direction] = WAYS) -> None:
        """Give slices other ratios at once, while traffic flows.

        Raises:
            UsageError: They do not fit together, or there is no such slice.
        """
        self._adopt(self.plan.resliced(ratios, ways))

    def limit(self, rates_bps: Mapping[str, float], way: Direction) -> None:
        """Limit what the channel of terminals bears one way, in bit/s; inf takes a limit away.

        Raises:
            UsageError: There is no such terminal, or a rate is not above zero.
        """
        self._adopt(self.plan.limited(rates_bps, way))

    def impair(self, terminal: str, way: Direction, air: Air) -> None:
        """Change the delay, jitter and repetitions of a terminal one way.

        Raises:
            UsageError: There is no such terminal, or something is to be lost: no byte of a stream can be.
        """
        self.plan.index(terminal)
        if air.loss and air.retransmit_ms is None:
            raise UsageError("a proxied cell carries streams and loses nothing: give retransmit_ms, or use a NamespaceCell")
        self._bearers[terminal, way].air = air

    def outage(self, terminal: str, on: bool) -> None:
        """Take a terminal off the air, or let it back; meanwhile what it has to carry waits.

        Raises:
            UsageError: There is no such terminal.
        """
        self.plan.index(terminal)

        def switch() -> None:
            for way, carrier in self._carriers.items():
                carrier.settle()
                self._bearers[terminal, way].held = on
                carrier.settle()

        self._call(switch)

    def cut(self, terminal: str) -> None:
        """Break the connections of a terminal, as a radio link failure does; it may connect anew.

        Raises:
            UsageError: There is no such terminal.
        """
        self.plan.index(terminal)

        def abort() -> None:
            for end in list(self._ends[terminal]):
                end.abort()

        self._call(abort)

    def _adopt(self, plan: CellPlan) -> None:
        def change() -> None:
            for carrier in self._carriers.values():
                carrier.settle()
                carrier.adopt(plan)
                carrier.settle()

        self._call(change)
        self.plan = plan

    def _call(self, function: Callable[[], None]) -> None:
        """Run a function in the cell's thread, and wait until it has."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _open(self) -> None:
        for name in self.plan.terminals:
            server = await self._loop.create_server(partial(self._accept, name), HOST, 0)
            self._servers.append(server)
            self._ports[name] = server.sockets[0].getsockname()[1]

    def _accept(self, name: str) -> End:
        near = self._end(name, "up")
        task = self._loop.create_task(self._join(near, self._end(name, "down")))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
        return near

    def _end(self, name: str, way: Direction) -> End:
        return End(self._bearers[name, way], self._carriers[way], self._ends[name])

    async def _join(self, near: End, far: End) -> None:
        try:
            await self._loop.create_connection(lambda: far, *self._target)
        except OSError:  # as if the target had refused the terminal itself
            near.abort()
            return
        if near.gone:
            far.abort()
        near.join(far)
        far.join(near)

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._joining:
            task.cancel()
        for carrier in self._carriers.values():
            carrier.close()
        for end in [end for ends in self._ends.values() for end in ends]:
            end.abort()
        await asyncio.gather(*(server.wait_closed() for server in self._servers), *self._joining, return_exceptions=True)
        while any(self._ends.values()):
            await asyncio.sleep(0)

"""The virtual clock says what real packets take: one exchange in the model and over both emulators."""

import subprocess

import numpy as np
import pytest

from edge.slices.emulate import ProxyCell, netns_available
from tests.bench.emulation import BORROWING, GOAL, Emulator, emulated_s, errors, in_namespaces, modelled, through_a_proxy
from tests.integration.emulated import MBIT, Sink, Watch, cell_of, ratios, share, undisturbed


@pytest.mark.parametrize("emulator", [in_namespaces, through_a_proxy])
def test_an_exchange_takes_as_long_as_the_model_says(emulator: Emulator) -> None:
    if emulator is in_namespaces and (reason := netns_available()):
        pytest.skip(reason)
    traffic, plan, changes = modelled(BORROWING)

    def check(watch: Watch) -> None:
        transfers, whole = errors(traffic, emulated_s(emulator, BORROWING, plan, changes, watch.pause))
        assert np.median(np.abs(transfers)) <= GOAL
        assert abs(whole) <= GOAL

    undisturbed(check)


def test_a_limit_that_is_raised_lets_a_proxied_sender_go_on() -> None:
    plan = cell_of(ratios(a=0), {"x": "a"}, 40 * MBIT).limited({"x": 2 * MBIT}, "up")

    def check(watch: Watch) -> None:
        sink = Sink.at("127.0.0.1", subprocess.Popen)
        with ProxyCell(plan, (sink.address, sink.port)) as cell:
            source = sink.feed(subprocess.Popen, through=cell.address("x"))
            watch.pause(0.5)  # until its queue is full, by the measure of the low limit
            cell.limit({"x": 30 * MBIT}, "up")
            watch.pause(0.3)
            begin_s, end_s = watch.pause(1.0)
            found = share(sink.seen()[0], begin_s, end_s, 30 * MBIT)
        source.wait(10)
        assert found == pytest.approx(1.0, rel=0.02)

    undisturbed(check)

"""Every slicing policy of the union keeps every limit of the radio, whatever it is asked."""

import random
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from edge.slices.uplink import Floats, Grant, Uplink
from fedslice.core.federation import FederationConfig
from server.slicing import SlicingConfig
from tests.uplinks import NEAR_PRBS, allowed, odd_uplinks, random_uplink

FEDERATION = FederationConfig(deadline_s=60.0, close_at=0.8)
# Static has no policy: there is nothing that it could break.
CONFIGS: list[Any] = [config for config in get_args(get_args(SlicingConfig)[0]) if config().build(FEDERATION)]
every_policy = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_fields["policy"].default)
BY_NODE = ("release_s", "delay_s", "bits", "sinr_db", "most_prbs", "slice")


def reordered(uplink: Uplink, order: npt.NDArray[np.intp]) -> Uplink:
    columns = {name: getattr(uplink, name)[order] for name in BY_NODE}
    return replace(uplink, nodes=tuple(uplink.nodes[at] for at in order), **columns)


def within_limits(uplink: Uplink, grant: Grant) -> bool:
    num = len(uplink.nodes)
    return (
        grant.floor_prbs.shape == grant.ceiling_prbs.shape == (num,)
        and allowed(uplink, grant.floor_prbs)
        and bool((grant.floor_prbs <= grant.ceiling_prbs).all())
        and not np.isnan(grant.ceiling_prbs).any()
        and bool((grant.floor_prbs[uplink.bits <= 0] == 0).all())
    )


@every_policy
@settings(max_examples=80, deadline=None)
@given(odd_uplinks())
def test_no_limit_is_ever_broken(config: Any, uplink: Uplink) -> None:
    grant = config().build(FEDERATION).grant(uplink, None)
    assert within_limits(uplink, grant)
    assert not grant.finish_s < uplink.now_s
    assert not grant.limit or grant.finish_s == np.inf


@every_policy
@settings(max_examples=60, deadline=None)
@given(odd_uplinks(), st.floats(0.0, 1.0), st.data())
def test_what_held_before_does_not_break_one_now(config: Any, uplink: Uplink, hysteresis: float, data: st.DataObject) -> None:
    policy = config(hysteresis=hysteresis).build(FEDERATION)
    before = policy.grant(uplink, None)
    held = np.array(data.draw(st.lists(st.floats(0.0, 60.0), min_size=3, max_size=3)))
    left = (
        uplink.bits * np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8)))[: len(uplink.bits)]
    )
    later = replace(uplink, now_s=uplink.now_s + 0.5, held=held, bits=left, sinr_db=uplink.sinr_db - 3.0)
    after = policy.grant(later, before)
    assert within_limits(later, after)


@every_policy
@settings(max_examples=40, deadline=None)
@given(odd_uplinks(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(config: Any, uplink: Uplink, shuffler: random.Random) -> None:
    drawn = list(range(len(uplink.nodes)))
    shuffler.shuffle(drawn)
    order = np.array(drawn, np.intp)
    policy = config().build(FEDERATION)
    there, here = policy.grant(reordered(uplink, order), None), policy.grant(uplink, None)
    assert there.floor_prbs == pytest.approx(here.floor_prbs[order], abs=NEAR_PRBS, rel=1e-6)
    assert there.ceiling_prbs == pytest.approx(here.ceiling_prbs[order], abs=NEAR_PRBS, rel=1e-6)
    assert there.limit == here.limit
    assert there.finish_s == pytest.approx(here.finish_s, rel=1e-6, nan_ok=True)


@every_policy
def test_the_same_question_has_the_same_answer(config: Any) -> None:
    def floors() -> Floats:
        found: Floats = config().build(FEDERATION).grant(random_uplink(5, 9), None).floor_prbs
        return found

    assert floors().tobytes() == floors().tobytes()


@every_policy
def test_nothing_to_send_needs_nothing(config: Any) -> None:
    done = replace(random_uplink(5, 9), bits=np.zeros(9))
    grant = config().build(FEDERATION).grant(done, None)
    assert grant.floor_prbs.tolist() == [0.0] * 9
    assert grant.ceiling_prbs.tolist() == [np.inf] * 9
    assert grant.limit == ""


@every_policy
def test_the_config_is_told_by_its_policy(config: Any) -> None:
    name = config.model_fields["policy"].default
    known: TypeAdapter[Any] = TypeAdapter(SlicingConfig)
    assert known.validate_python({"policy": name}) == config()
    assert config().build(FEDERATION).period_s >= 0.01

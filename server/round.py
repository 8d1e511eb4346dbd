"""One round. Read this file first.

    roll call -> selection -> instructions -> the grid carries, nodes train -> guard -> fold -> step -> learn

Everything named here is a part behind a seam: `strategy` holds the parts, `grid` is whatever reaches the nodes.
"""

import time
from collections.abc import Iterable

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid

from edge.flower import to_record
from edge.simulation import TimedGrid
from fedslice.core.params import Model
from fedslice.core.records import NodeId, RoundRecord
from fedslice.core.seeds import rng
from server.ledger import Ledger, slice_use
from server.parts import Parts
from server.slicing import bound_s


def run_round(number: int, model: Model, strategy: Parts, grid: TimedGrid) -> tuple[Model, RoundRecord]:
    """Run one round: `number` counts from 1. Returns the model, which stands if the round is void, and the record.

    Raises:
        RunError: A part cannot go on, such as a foreign strategy that refuses to aggregate.
    """
    started = time.perf_counter()
    cohort, instructions = open_round(number, model, strategy, grid)
    replies = grid.send_and_receive(instructions, timeout=strategy.deadline_s)
    new_model, ledger = close_round(number, model, strategy, cohort, replies)
    phase, ended_s, bounded = grid.phase, grid.clock.now_s, grid.bounded  # the next exchange has others
    strategy.tell("timings", round=number, nodes=phase.rows())
    strategy.tell("radio", round=number, **grid.radio())
    evaluated = evaluate(number, new_model or model, strategy, grid) if strategy.is_due(number) else {}
    record = RoundRecord(
        round=number,
        virtual_s=ended_s,
        wall_s=time.perf_counter() - started,
        selected=cohort,
        replied=sorted(ledger.replied),
        rejected=sorted(ledger.rejected, key=lambda r: (r.node, r.reason)),
        bytes_down=phase.bytes_down,
        bytes_up=phase.bytes_up,
        joules=phase.joules,
        slices=slice_use(phase, strategy.registry.slice_of),
        train=ledger.metrics(),
        evaluate=evaluated,
        void=new_model is None,
        round_s=phase.duration_s,
        bound_s=bound_s(phase.traffic.start, phase.num_awaited) if phase.traffic and bounded else None,
    )
    return new_model or model, record


def open_round(number: int, model: Model, strategy: Parts, grid: Grid) -> tuple[list[NodeId], list[Message]]:
    """Choose the cohort and write its instructions. The model is one content for all, whatever their number."""
    nodes = strategy.roll_call(grid)
    cohort = strategy.selection.select(nodes, strategy.cohort, rng(strategy.seed, "select", number))
    return cohort, strategy.instruct(number, model, cohort, grid)


def close_round(
    number: int, model: Model, strategy: Parts, cohort: list[NodeId], replies: Iterable[Message]
) -> tuple[Model | None, Ledger]:
    """Fold the replies as they come, in whatever order, and step. None in place of a model: the round is void."""
    ledger = Ledger(cohort)
    accepted = strategy.screened(replies, model, ledger)  # the guard, lazily: one update in memory at a time
    fold = strategy.rule.fold(model, accepted, strategy.quorum)
    ledger.close()
    strategy.note_refusals(number, ledger)
    if fold is None:
        return None, ledger
    stepped = strategy.optimizer.step(model.arrays, fold.changes) | fold.settled
    if not all(np.isfinite(array).all() for array in stepped.values()):
        strategy.tell("step_refused", round=number, reason="the server optimizer's step would make the model infinite")
        return None, ledger
    strategy.learn(number, ledger)
    return Model({name: stepped[name] for name in model.arrays}, model.entries), ledger


def evaluate(number: int, model: Model, strategy: Parts, grid: TimedGrid) -> dict[str, float]:
    """Return what the evaluators, which hold central test data and never train, measure of the model."""
    arrays, config = to_record(model.arrays), ConfigRecord({})
    instructions = strategy.configure_evaluate(number, arrays, config, grid)
    measured = strategy.aggregate_evaluate(number, grid.send_and_receive(instructions))
    return {name: float(value) for name, value in (measured or {}).items() if isinstance(value, int | float)}

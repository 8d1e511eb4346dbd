"""What the run's log keeps of an exchange: who had how much of the radio when, and over which channel."""

import math
from typing import Any

import numpy as np

from edge.slices.demand import Traffic, Use

_STEPS = 40  # a round: what a picture can show
_PLACES = 4  # of a share


def radio_fields(traffic: Traffic, duration_s: float) -> dict[str, Any]:
    """Return the fields of a `radio` event: shares of the PRBs by slice over the exchange, and each node's mean SINR.

    `short` is the share of time in which users of GBR slices had less than their rate. What users beside the cohort take
    is listed as a slice of its own, named "SLICE (background)".

    Args:
        traffic: What came of the exchange.
        duration_s: How long it took in s, until it was closed.
    """
    step_s = max(duration_s, 1e-6) / _STEPS
    names = [*traffic.start.names, *(f"{name} (background)" for name in traffic.start.names)]
    fields: dict[str, Any] = {"step_s": step_s}
    for way, use in traffic.use.items():
        shares = _binned(use, step_s) / traffic.start.total_prbs
        used = {name: np.round(row, _PLACES).tolist() for name, row in zip(names, shares, strict=True) if row.any()}
        fields[way] = used or {names[0]: [0.0] * _STEPS}
    down_db, up_db = (traffic.sinr_db[way] for way in ("down", "up"))
    fields["nodes"] = {
        str(node): {"sinr_down_db": _rounded(down), "sinr_up_db": _rounded(up)}
        for node, down, up in zip(traffic.nodes, down_db.tolist(), up_db.tolist(), strict=True)
    }
    fields["short"] = {way: use.short_s / use.due_s for way, use in traffic.use.items() if use.due_s}
    return {**fields, "grants": traffic.grants, "limits": traffic.limits}


def _binned(use: Use, step_s: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the mean PRBs in each step, a row a slice: nobody's between two events are lost or counted twice."""
    until_s = np.array(use.until_s)
    prbs = np.array(use.prbs).reshape(len(until_s) - 1, -1)
    so_far = np.concatenate([np.zeros((1, prbs.shape[1])), np.cumsum(prbs * np.diff(until_s)[:, None], axis=0)])
    edges_s = np.arange(_STEPS + 1) * step_s
    return np.array([np.diff(np.interp(edges_s, until_s, column)) / step_s for column in so_far.T])


def _rounded(value: float) -> float:
    return round(value, 2) if math.isfinite(value) else math.nan

"""What a person sees of a cell: its slices, and what each node gets."""

import math
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Column, Table

_MOST_ROWS = 40
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def slices_tables(found: dict[str, Any]) -> Iterator[RenderableType]:
    """Yield what to print of a survey: see `edge.slices.survey`."""
    cell = found["cell"]
    yield (
        f"{cell['place']}, {cell['carrier_ghz']:g} GHz, {cell['bandwidth_mhz']} MHz: {cell['prbs']} PRBs, "
        f"{cell['down_share']:.0%} of time down and {cell['up_share']:.0%} up.\n"
    )
    yield _promises(found["slices"])
    yield (
        "\nRatios: dedicated-min-max, in percent of the PRBs. Rates: bit/s of one terminal. Latency: of a message of 1 kB; "
        "late is the share that misses the PDB, of which the 5QI allows the PER.\n"
    )
    yield _ratios(found["slices"])
    yield "\nRates at the median channel, alone in the cell and with all others at once:\n"
    yield _terminals("node", found["nodes"])
    if found["background"]:
        yield ""
        yield _terminals("other", found["background"])
    for row in found["nodes"]:
        if not (row["alone_down_bps"] and row["alone_up_bps"]):
            yield f"node {row['node']}: out of reach, its channel bears no MCS"
    for row in (*found["nodes"], *found["background"]):
        if row["reason"]:
            yield f"node {row['node']}: its rate is not guaranteed. {row['reason']}"


def _promises(rows: list[dict[str, Any]]) -> Table:
    table = Table("slice", "S-NSSAI", "5QI", "type", *_right("PDB", "PER", "ARP", "nodes", "others"), box=None, pad_edge=False)
    for row in rows:
        budget = f"{row['delay_budget_ms']} ms"
        kind = (row["name"], row["snssai"], str(row["fiveqi"]), row["resource"])
        table.add_row(*kind, budget, f"{row['error_rate']:.0e}", str(row["arp"]), str(row["nodes"]), str(row["background"]))
    return table


def _ratios(rows: list[dict[str, Any]]) -> Table:
    table = Table("slice", "way", *_right("ratio", "GFBR", "limit", "peak", "latency", "late"), box=None, pad_edge=False)
    for row in rows:
        for way in ("down", "up"):
            side = row[way]
            ratio = f"{side['dedicated']}-{side['min']}-{side['max']}"
            rates = [_rate(side[key]) for key in ("gfbr_bps", "most_bps", "peak_bps")]
            late = f"{side['latency_ms']:.1f} ms" if math.isfinite(side["latency_ms"]) else "no end"
            missed = f"{side['late_share']:.0e}" if side["late_share"] else "0"
            table.add_row(row["name"] if way == "down" else "", way, ratio, *rates, late, missed)
    return table


def _terminals(what: str, rows: list[dict[str, Any]]) -> Table:
    heads = ("m", "SINR down", "up", "CQI", "alone down", "all", "alone up", "all")
    table = Table(Column(what, justify="right"), "slice", *_right(*heads), "GFBR", box=None, pad_edge=False)
    for row in rows[:_MOST_ROWS]:
        rates = [_rate(row[key]) for key in ("alone_down_bps", "together_down_bps", "alone_up_bps", "together_up_bps")]
        sinr = [f"{row['sinr_down_db']:.0f} dB", f"{row['sinr_up_db']:.0f} dB", str(row["cqi"])]
        promised = "yes" if row["guaranteed"] else "no" if row["reason"] else ""
        table.add_row(str(row["node"]), row["slice"], f"{row['distance_m']:.0f}", *sinr, *rates, promised)
    if len(rows) > _MOST_ROWS:
        table.add_row("...", f"{len(rows) - _MOST_ROWS} more; all with --json")
    return table


def _right(*heads: str) -> list[Column]:
    return [Column(head, justify="right") for head in heads]


def _rate(bps: float) -> str:
    if bps == 0.0 or math.isinf(bps):
        return "-"
    scale, unit = next((one for one in _UNITS if bps >= one[0]), (1.0, ""))
    return f"{bps / scale:.3g} {unit}".strip()

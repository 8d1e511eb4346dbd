"""Client updates per second of a simulation: ours, a bare torch loop, Flower's on Ray, and pfl's.

The same clients for all: 64 nodes, 10 SGD steps of 32 Shuttle readings each, an MLP of 8,997 parameters, FedAvg.
The bare loop is the limit of this form (one node after the other in torch) on one core. Run as
`python -m tests.bench.simulate`; peers that are not installed are left out and said so.
"""

import argparse
import copy
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from client.session import Session, session
from fedslice.core.config import RunConfig

NODES, STEPS, BATCH, LR, MOMENTUM = 64, 10, 32, 0.05, 0.9
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    f"nodes.count={NODES}", f"selection.cohort={NODES}", "selection.policy=uniform", "partition.scheme=iid",
    "task.hidden=[90, 88]", f"training.max_steps={STEPS}", f"training.batch_size={BATCH}", f"training.lr={LR}",
    f"training.momentum={MOMENTUM}", "federation.evaluate_every=100000",
)  # fmt: skip


def run_config(rounds: int, *more: str, out: str = "") -> RunConfig:
    """Return the shared configuration; digits' file, because it sets little."""
    base = ("task.name=shuttle", *SETTINGS, f"federation.rounds={rounds}", *more)
    return RunConfig(str(ROOT / "configs" / "digits.toml"), base, "", out)


def known() -> Session:
    """Return the task and the nodes' data."""
    return session(run_config(1).as_run_config())


def bare(rounds: int) -> dict[str, Any]:
    """The limit: a plain torch loop over the clients, one core, nothing else; weights summed, no messages."""
    torch.set_num_threads(1)
    s = known()
    model = s.task.model()
    data = [tuple(map(torch.from_numpy, s.examples(node))) for node in range(NODES)]
    start = copy.deepcopy(model.state_dict())
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for x, y in data:
            _train_plainly(model, start, x, y, s)
            for name, value in model.state_dict().items():
                total[name] += value / NODES
        start = total
        times.append(time.perf_counter() - began)
    return rates(times)


def bare_everywhere(rounds: int) -> dict[str, Any]:
    """The limit of this machine: a bare loop on every core at once, which slow one another down."""
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        each = pool.map(bare, [rounds] * cores)
    return {**each[0], "per_s": sum(one["per_s"] for one in each)}


def _train_plainly(model: Any, start: Any, x: torch.Tensor, y: torch.Tensor, s: Session) -> None:
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for batch in torch.randperm(len(x)).split(BATCH)[:STEPS]:  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        s.task.loss(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ours(rounds: int, workers: int = 0, nodes: int = NODES, cohort: int = NODES) -> dict[str, Any]:
    """Our whole simulation: Flower messages, slices, virtual clock, guard, exact fold, checkpoint, run folder."""
    from fedslice.modes import simulate

    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        more = (f"federation.workers={workers}", f"nodes.count={nodes}", f"selection.cohort={cohort}")
        run = run_config(rounds, *more, out=f"{folder}/run")
        simulate(run, lambda event, fields: times.append(fields["wall_s"]) if event == "round" else None)
    return rates(times, cohort)


def flower(rounds: int) -> dict[str, Any]:
    """Flower's own simulation on Ray, both cores: its FedAvg, and a client as in its PyTorch tutorial."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = str(ROOT)
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from tests.bench.flower_client import app as client_app

    times: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < NODES:
            time.sleep(0.05)
        arrays = ArrayRecord(known().task.model().state_dict())
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
        for _ in range(rounds):  # a start a round, so that each is timed; the strategy keeps no state between
            began = time.perf_counter()
            arrays = strategy.start(grid, arrays, num_rounds=1).arrays
            times.append(time.perf_counter() - began)

    backend: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"log_to_driver": False}}
    run_simulation(server_app, client_app, NODES, backend_config=backend)
    return rates(times)


def pfl(rounds: int) -> dict[str, Any]:
    """pfl-research in one process, as installed: its FederatedAveraging over the same users."""
    from tests.bench.pfl_peer import run

    torch.set_num_threads(1)
    return rates(run(known(), rounds))


def rates(times: list[float], cohort: int = NODES) -> dict[str, Any]:
    """Return seconds of the first round, and updates a second in the median of the others."""
    steady = statistics.median(times[1:])
    return {"first_s": times[0], "steady_s": steady, "per_s": cohort / steady, "rss_mb": _peak_mb()}


def _peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CONTENDERS = {
    "bare loop, one core": lambda r: bare(r),
    "bare loop, on every core at once": lambda r: bare_everywhere(r),
    "FedSlice, one process": lambda r: ours(r, workers=1),
    "FedSlice, all cores": lambda r: ours(r),
    "pfl, one process": lambda r: pfl(r),
    "Flower on Ray, all cores": lambda r: flower(min(r, 8)),
    "FedSlice, 100 nodes, cohort 20": lambda r: ours(r, nodes=100, cohort=20),
    "FedSlice, 2000 nodes, cohort 20": lambda r: ours(r, nodes=2000, cohort=20),
}
_NEEDS = {"pfl, one process": "pfl", "Flower on Ray, all cores": "ray"}


def main() -> None:
    """Run each contender in a process of its own and print what it did, with ratios to the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--one", choices=CONTENDERS, help="run just this one, and print JSON")
    args = parser.parse_args()
    if args.one:
        np.random.seed(0)
        print("RESULT " + json.dumps(CONTENDERS[args.one](args.rounds)))
        return
    print(f"{'':34}{'updates/s':>10}{'of bare loop':>14}{'first round':>13}{'a round':>10}{'peak RSS':>10}")
    base = None
    for name in CONTENDERS:
        if name in _NEEDS and importlib.util.find_spec(_NEEDS[name]) is None:
            print(f"{name:34}not installed: {_NEEDS[name]}")
            continue
        command = [sys.executable, "-m", "tests.bench.simulate", "--one", name, "--rounds", str(args.rounds)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not lines:
            print(f"{name:34}failed: {done.stderr.strip().splitlines()[-1:]}")
            continue
        r = json.loads(lines[-1].removeprefix("RESULT "))
        base = base or r["per_s"]
        print(
            f"{name:34}{r['per_s']:10.0f}{r['per_s'] / base:14.2f}{r['first_s']:11.2f} s{r['steady_s'] * 1e3:7.0f} ms"
            f"{r['rss_mb']:7.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()

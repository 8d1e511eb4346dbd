"""How long the timing of a large federation takes, nothing else: every node in every round, on the default cell.

python -m tests.bench.timing [NODES] [ROUNDS]
"""

import sys
import time

from edge.slices import Demand, Network, NetworkConfig, NodesConfig, profiles

BYTES = 36_000  # an update of 9,000 parameters


def main(num_nodes: int, num_rounds: int) -> None:
    """Time all rounds, and print the seconds that it took and the virtual ones that went by."""
    nodes = profiles(NodesConfig(count=num_nodes), 0)
    network = Network(NetworkConfig.model_validate({}), nodes, 0)
    demands = [
        Demand(node=i, bytes_down=BYTES, compute_s=2000 / profile.examples_per_s, bytes_up=BYTES)
        for i, profile in enumerate(nodes)
    ]
    started, at_s = time.perf_counter(), 0.0
    for _ in range(num_rounds):
        traffic = network.carry(demands, at_s)
        at_s += float((traffic.download_s + traffic.compute_s + traffic.upload_s).max())
    took_s = time.perf_counter() - started
    each_ms = 1e3 * took_s / num_rounds
    print(f"{num_nodes} nodes, {num_rounds} rounds: {took_s:.1f} s, {each_ms:.0f} ms a round, for {at_s:.0f} virtual s")


if __name__ == "__main__":
    main(*(int(text) for text in (*sys.argv[1:], *("1000", "100")[len(sys.argv) - 1 :])))

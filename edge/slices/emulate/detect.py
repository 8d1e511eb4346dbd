"""Whether this machine can do network namespaces with a queueing tree: found out by trying, since kernels differ."""

import os
import shutil
import sys
from functools import cache

from edge.slices.emulate.commands import batch, call
from edge.slices.emulate.names import prefix, remove
from fedslice.core.errors import RunError

_TREE = [
    "qdisc add dev lo root handle 1: htb default 0",
    "class add dev lo parent 1: classid 1:1 htb rate 1mbit",
    "qdisc add dev lo parent 1:1 handle 2: htb default 0",
    "class add dev lo parent 2: classid 2:1 htb rate 1mbit",
    "qdisc add dev lo parent 2:1 bfifo limit 10000",
    "filter add dev lo parent 1: protocol ip prio 1 u32 match ip src 10.0.0.1/32 flowid 1:1",
]
_LINKS = [
    "link add name pair type veth peer name peer",
    "link add name bridge type bridge",
    "link set dev pair master bridge",
    "link set dev pair type bridge_slave isolated on",
]


@cache
def netns_available() -> str:
    """Return why cells of network namespaces cannot be made here, in a few words; empty when they can."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"the command {missing[0]} of iproute2 is not there"
    name = f"{prefix()}-try"
    try:
        call("ip", "netns", "add", name)
        for what, command, lines in (
            ("veth pairs and bridges", "ip", _LINKS),
            ("HTB tree", "tc", _TREE),
            ("TAP interfaces (/dev/net/tun)", "ip", ["tuntap add mode tap name tap"]),
        ):
            try:
                batch(command, name, lines)
            except RunError as error:
                return f"this kernel gives no {what}: {error}"
    except RunError as error:
        return f"no network namespace can be made: {error}"
    finally:
        remove([name])
    return ""

"""One seed for a whole run: every draw names its place, so that no draw depends on another."""

import hashlib

import numpy as np


def rng(seed: int, *place: str | int) -> np.random.Generator:
    """Return the generator that belongs to one place of a run.

    Args:
        seed: The seed of the run.
        place: What the draw is for, e.g. `("select", round)` or `("train", round, node)`.

    Returns:
        A generator whose stream is independent of that of any other place.
    """
    return np.random.default_rng(derived_seed(seed, *place))


def derived_seed(seed: int, *place: str | int) -> int:
    """Return a 63-bit seed for one place of a run, for libraries that want an integer."""
    words = [f"str={part}" if isinstance(part, str) else f"int={int(part)}" for part in (seed, *place)]
    digest = hashlib.sha256("\x1f".join(words).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1

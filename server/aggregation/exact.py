"""A weighted sum that does not depend on the order of its terms: fixed point, so that adding is exact.

Floating-point addition rounds, and rounds otherwise in another order; integers do not. Each term is rounded
once, by itself, to a multiple of 2**-44. The sum of K terms of weight w, over the total weight, is then within
2**-45 * K / sum(w) of the true mean: far below float32's own step for any weight of an example or more.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fedslice.core.params import Array, wrap

RESOLUTION = 2.0**-44
_CHUNK = 1 << 15  # doubles that stay in a core's cache
_LIMB_BITS = 32
_LIMB = 2.0**_LIMB_BITS
_ROOM = 2**62


class ExactSum:
    """The sum of w_i x_i over any number of terms, in 8 bytes an element; 16 once sums outgrow 64 bits."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Start at zero."""
        self._shape = shape
        self._low = np.zeros(int(np.prod(shape, dtype=np.int64)), np.int64)
        self._high: npt.NDArray[np.int64] | None = None
        self._bound = 0  # no element of _low is larger than this

    def add(self, value: Array, weight: float, base: Array | None = None, period: float = 0.0) -> None:
        """Add weight * (value - base), the difference taken to its nearest equivalent if there is a period."""
        if self._bound >= _ROOM:
            self._carry()
        peak = 0.0
        for part, terms in terms_of(value, base, period):
            terms *= weight / RESOLUTION
            np.rint(terms, out=terms)
            largest = float(np.abs(terms).max())
            if largest >= _ROOM:
                self._add_high(part, terms)
                largest = _LIMB
            self._low[part] += terms.astype(np.int64)
            peak = max(peak, largest)
        self._bound += int(peak)

    def mean(self, total_weight: float) -> npt.NDArray[np.float64]:
        """Return the sum over a weight, in the memory of the sum, which is used up."""
        out = self._low.view(np.float64)
        for start in range(0, len(out), _CHUNK):
            part = slice(start, start + _CHUNK)
            sums = self._low[part].astype(np.float64)
            if self._high is not None:
                sums += self._high[part].astype(np.float64) * _LIMB
            out[part] = sums * RESOLUTION / total_weight
        return out.reshape(self._shape)

    def _add_high(self, part: slice, terms: npt.NDArray[np.float64]) -> None:
        """Move what is beyond the low limb to the high one, leaving the remainder in terms."""
        high = np.floor(terms / _LIMB)
        terms -= high * _LIMB
        self._high_limb()[part] += high.astype(np.int64)

    def _carry(self) -> None:
        self._high_limb()[:] += self._low >> _LIMB_BITS
        self._low &= (1 << _LIMB_BITS) - 1
        self._bound = 1 << _LIMB_BITS

    def _high_limb(self) -> npt.NDArray[np.int64]:
        if self._high is None:
            self._high = np.zeros_like(self._low)
        return self._high


def terms_of(value: Array, base: Array | None, period: float = 0.0) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """Yield value - base in double precision, a cache-sized part at a time."""
    flat = value.reshape(-1)
    flat_base = None if base is None else base.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        part = slice(start, start + _CHUNK)
        terms = flat[part].astype(np.float64)
        if flat_base is not None:
            terms -= flat_base[part]
        yield part, wrap(terms, period) if period else terms

"""A weighted sum that does not depend on the order of its terms: fixed point, so that adding is exact.

Floating-point addition rounds, and rounds otherwise in another order; integers do not. Each term is rounded
once, by itself, to a multiple of 2**-44. The mean of K terms of total weight W is then within 2**-45 * K / W, and
2**-50 of its largest term, of the true mean: an absolute bound, below float32's own step for parameters down to about 1e-6.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fedslice.core.params import Array, wrap

RESOLUTION = 2.0**-44
LARGEST_TERM = 2.0**64  # of weight times value: the guard refuses what is beyond
_CHUNK = 1 << 15  # doubles that stay in a core's cache
_LIMB_BITS = 60
_LIMB = 2**_LIMB_BITS
_ROOM = 2**62


class ExactSum:
    """The sum of w_i x_i over any number of terms, in 8 bytes an element; 10 once sums outgrow 64 bits, 16 beyond 75."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Start at zero."""
        self._shape = shape
        self._low = np.zeros(int(np.prod(shape, dtype=np.int64)), np.int64)
        self._bound = 0  # no element of _low is larger than this
        self._high: npt.NDArray[np.signedinteger] | None = None  # in units of 2**60
        self._high_bound = 0

    def add(self, value: Array, weight: float, base: Array | None = None, period: float = 0.0) -> None:
        """Add weight * (value - base), the difference taken to its nearest equivalent if there is a period.

        Raises:
            OverflowError: A term is beyond `LARGEST_TERM`, or not a number. Nothing may be added after that.
        """
        if self._bound >= _ROOM:
            self._carry()
        peak = high_peak = 0.0
        for part, terms in terms_of(value, base, period):
            terms *= weight
            largest = float(np.abs(terms).max())
            if not largest <= LARGEST_TERM:
                raise OverflowError(f"a term of {largest:.3g} is beyond {LARGEST_TERM:.3g}")
            terms *= 1 / RESOLUTION
            np.rint(terms, out=terms)
            largest /= RESOLUTION
            if largest >= _ROOM:
                # trunc and the remainder are exact, where floor's remainder of a small negative term would not be.
                high = np.trunc(terms / _LIMB)
                terms -= high * _LIMB
                self._high_limb(self._high_bound + int(largest / _LIMB) + 1)[part] += high.astype(np.int64)
                largest, high_peak = float(_LIMB), max(high_peak, largest / _LIMB)
            self._low[part] += terms.astype(np.int64)
            peak = max(peak, largest)
        self._bound += int(peak) + 1
        self._high_bound += int(high_peak) + 1 if high_peak else 0

    def mean(self, total_weight: float) -> npt.NDArray[np.float64]:
        """Return the sum over a weight, in the memory of the sum, which is used up."""
        out = self._low.view(np.float64)
        for start in range(0, len(out), _CHUNK):
            part = slice(start, start + _CHUNK)
            # How a sum lies in its limbs depends on the order of terms; after a carry it no longer does.
            carry, rest = _split(self._low[part])
            high = carry if self._high is None else carry + self._high[part]
            out[part] = (rest.astype(np.float64) + high.astype(np.float64) * _LIMB) * RESOLUTION / total_weight
        return out.reshape(self._shape)

    def _carry(self) -> None:
        self._high_bound += self._bound // _LIMB + 1
        limb = self._high_limb(self._high_bound)
        for start in range(0, len(self._low), _CHUNK):
            part = slice(start, start + _CHUNK)
            carry, self._low[part] = _split(self._low[part])
            limb[part] += carry
        self._bound = _LIMB

    def _high_limb(self, bound: int) -> npt.NDArray[np.signedinteger]:
        """Return the high limb, wide enough for elements up to a bound."""
        if bound >= 2**63:
            raise OverflowError("more terms of the largest size than a sum can hold")
        width: type[np.signedinteger] = np.int16 if bound < 2**15 else np.int64
        if self._high is None:
            self._high = np.zeros(len(self._low), width)
        elif self._high.itemsize < np.dtype(width).itemsize:
            self._high = self._high.astype(width)
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


def _split(low: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return low as units of 2**60 and a rest of at most half a unit, so that a small sum is all rest."""
    carry = ((low >> (_LIMB_BITS - 1)) + 1) >> 1
    return carry, low - (carry << _LIMB_BITS)

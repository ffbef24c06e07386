r"""Normal numbers of a MersenneTwister of Julia 1.0 to 1.6, so that sets drawn there can be drawn again here.

The generator is dSFMT-19937: 191 words of 128 bits and a "lung" L, all taken as pairs of 64-bit numbers,

    L' = (x_i << 19) ^ swap(L) ^ x_{i+117},        x_i' = x_i ^ (L' >> 12) ^ (L' & mask),

where swap exchanges the four 32-bit quarters end for end. The 52 low bits of every number are the fraction of a double
in [1, 2). Normal numbers come from them by a ziggurat of 256 layers of equal area v below exp(-x^2/2): 8 bits choose
the layer, all 51 but the sign place x in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

_WORDS = 191
_PICK_UP = 117
_MASKS = (0x000FFAFFFFFFFB3F, 0x000FFDFFFC90FFFD)
_FIX = (0x90014964B32F4329, 0x3B8D12AC548A7C7A)
_PERIOD = (0x3D84E1AC0DC82880, 0x0000000000000001)
_FRACTION = 2**52 - 1
_ONE = 0x3FF0000000000000  # sign and exponent of a double in [1, 2)
_64 = 2**64 - 1
_32 = 2**32 - 1

_TAIL = 3.6541528853610088  # where the lowest layer's rectangle ends
_LAYERS = 256


def julia_normals(seed: int, count: int) -> np.ndarray:
    """The first `count` numbers of randn(MersenneTwister(seed)), float64, for a seed below 2^32."""
    stream = fractions(seed)
    edge, height = _ziggurat()
    return np.array([_normal(stream, edge, height) for _ in range(count)])


def fractions(seed: int) -> Iterator[int]:
    """The generator's 52-bit numbers, without end; divided by 2^52 they are what rand(MersenneTwister(seed)) gives."""
    state = _seeded(seed)
    even, odd, low, high = state[:-2:2], state[1:-2:2], state[-2], state[-1]
    while True:
        for i in range(_WORDS):
            j = (i + _PICK_UP) % _WORDS
            turned_low, turned_high = (high >> 32 | high << 32) & _64, (low >> 32 | low << 32) & _64
            low = (even[i] << 19 & _64) ^ turned_low ^ even[j]
            high = (odd[i] << 19 & _64) ^ turned_high ^ odd[j]
            even[i] ^= low >> 12 ^ low & _MASKS[0]
            odd[i] ^= high >> 12 ^ high & _MASKS[1]
            yield even[i] & _FRACTION
            yield odd[i] & _FRACTION


def _seeded(seed: int) -> list[int]:
    """192 pairs of 64-bit numbers, the last being the lung, mixed from one 32-bit key."""
    size, lag = 4 * (_WORDS + 1), 11
    middle = (size - lag) // 2
    p = [0x8B8B8B8B] * size
    for step in range(2 * size):
        i, j, k = step % size, (step + middle) % size, (step + middle + lag) % size
        if step < size:
            mixed = p[i] ^ p[j] ^ p[i - 1]
            r = (mixed ^ mixed >> 27) * 1664525 & _32
            p[j] = p[j] + r & _32
            r = r + (i + (1 if step == 0 else seed if step == 1 else 0)) & _32  # the key's length, then the key
            p[k] = p[k] + r & _32
        else:
            mixed = p[i] + p[j] + p[i - 1] & _32
            r = (mixed ^ mixed >> 27) * 1566083941 & _32
            p[j] ^= r
            r = r - i & _32
            p[k] ^= r
        p[i] = r
    state = [p[i] | p[i + 1] << 32 for i in range(0, size, 2)]
    for i in range(2 * _WORDS):
        state[i] = state[i] & _FRACTION | _ONE
    check = (state[-2] ^ _FIX[0]) & _PERIOD[0] ^ (state[-1] ^ _FIX[1]) & _PERIOD[1]
    if check.bit_count() % 2 == 0:  # not on the long cycle: change the one bit that puts it there
        state[-1] ^= 1
    return state


def _ziggurat() -> tuple[list[float], list[float]]:
    """Right ends of the layers, from the narrowest at 1 to the widest at 255, and exp(-x^2/2) there.

    Layer 0 is the tail's: as wide as a rectangle of its area would be.
    """
    height = math.exp(-0.5 * _TAIL**2)
    area = _TAIL * height + math.sqrt(math.pi / 2) * math.erfc(_TAIL / math.sqrt(2))
    edges, heights = [_TAIL], [height]
    while len(edges) < _LAYERS - 1:
        heights.append(heights[-1] + area / edges[-1])
        edges.append(math.sqrt(-2 * math.log(heights[-1])))
    return [area / height, *reversed(edges)], [1.0, *reversed(heights)]


def _normal(stream: Iterator[int], edge: list[float], height: list[float]) -> float:
    """One normal number. Layer i > 0 reaches from height[i], which is that of its right end, up to height[i - 1]."""
    while True:
        bits = next(stream)
        size, layer = bits >> 1, bits >> 1 & _LAYERS - 1
        x = size * (edge[layer] / 2**51)
        inner = _TAIL if layer == 0 else 0.0 if layer == 1 else edge[layer - 1]
        if size < int(inner / edge[layer] * 2**51):
            return -x if bits & 1 else x
        if layer == 0:
            return _tail(stream) * (-1 if size >> 8 & 1 else 1)
        if (height[layer - 1] - height[layer]) * _uniform(stream) + height[layer] < math.exp(-0.5 * x * x):
            return -x if bits & 1 else x


def _tail(stream: Iterator[int]) -> float:
    """A normal number beyond the last layer."""
    while True:
        x = -math.log(_uniform(stream)) / _TAIL
        if -2 * math.log(_uniform(stream)) > x * x:
            return _TAIL + x


def _uniform(stream: Iterator[int]) -> float:
    return next(stream) / 2**52

r"""One step of blocks under dies in three kernels: elements, nodes, and the top row where it meets the die.

What is computed is `Blocks._advance`, in float64. Done operation by operation a step reads and writes some 3 kB for
each element; here it is about 320 bytes: positions, velocities, stress, thickness and the account of energies once
each, and the four forces that an element passes on to its nodes. (Tiles of elements that keep the forces on their inner
nodes in registers need 190 bytes and were slower on an H200: 670 instead of 558 us for 512 blocks of 200 x 60.)

Divisions, square roots and exponentials of float64 are long routines on a GPU: an element needs two reciprocals, three
inverse roots and a short series instead.

Arrays are those of `Blocks`, b innermost: neighbours in memory are blocks that do the same. The numbers of a step are
one float64 array, since the kernel language takes Python's floats as float32.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from hofno.solvers.plasticity import ALLOWANCE, PLACES, Blocks

_LANES = 128


@triton.jit
def _inverse(x):
    """1/x to the last digits: a float32, which must be able to hold x, and a step of third order."""
    guess = (1.0 / x.to(tl.float32)).to(tl.float64)
    off = 1.0 - x * guess
    return guess + guess * (off + off * off)


@triton.jit
def _inverse_root(x):
    """1/sqrt(x) in the same way."""
    guess = tl.rsqrt(x.to(tl.float32)).to(tl.float64)
    off = 1.0 - x * guess * guess
    return guess + guess * off * (0.5 + 0.375 * off)


@triton.jit
def _exp(x):
    """Its series to x^8, which is positive everywhere; the error is below 3e-15 for |x| < 0.1, and 3e-6 at 1."""
    series = ((x * (1 / 40320) + 1 / 5040) * x + 1 / 720) * x + 1 / 120
    series = ((x * series + 1 / 24) * x + 1 / 6) * x + 0.5
    return 1.0 + x * (1.0 + x * series)


@triton.jit
def _returned(p, q, s, root, ratio):
    """m a of `PerfectPlastic.multiplier`, 1/(1 + m a) and 1/(1 + m b) with root = 1/yield, ratio = b/a.

    A step of Newton's method is N/S; with P = S (1 + m a) + N and Q = S (1 + m b) + N b/a, where m is from before the
    step, 1/(S P Q) gives both quotients and the step. F^(-1/2) is concave in m: steps do not go too far.
    """
    mean, rest = p * p * (root * root), (q * q + s * s) * (3.0 * root * root)
    outside = mean + rest > 1.0
    mean = tl.where(outside, mean, 1.0)  # so that what is not used is finite
    size = mean + rest
    step, slope = (size * _inverse_root(size) - 1.0) * size, mean + rest * ratio
    along, across = slope + step, slope + step * ratio
    both = along * across
    inverse = _inverse(slope * both)
    m, part = step * both * inverse, slope * slope * inverse
    by_mean, by_rest = part * across, part * along
    mean, rest = by_mean * by_mean * mean, by_rest * by_rest * rest
    size = mean + rest
    step, slope = (size * _inverse_root(size) - 1.0) * size, by_mean * mean + by_rest * rest * ratio
    along, across = slope + slope * m + step, slope + (slope * m + step) * ratio
    both = along * across
    inverse = _inverse(slope * both)
    m, part = m + step * both * inverse, slope * slope * inverse
    return tl.where(outside, m, 0.0), tl.where(outside, part * across, 1.0), tl.where(outside, part * along, 1.0)


@triton.jit
def _deformed(x1, y1, u1, w1, x2, y2, u2, w2, x3, y3, u3, w3, x4, y4, u4, w4, p_old, q_old, s_old, thickness, g_old,
              h_old, numbers):  # fmt: skip
    """State of elements after a step, both kinds of work, and the forces along both diagonals."""
    dt, mean_stiffness, shear = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    half = dt * 0.5
    x1, x2, x3, x4 = x1 + half * u1, x2 + half * u2, x3 + half * u3, x4 + half * u4
    y1, y2, y3, y4 = y1 + half * w1, y2 + half * w2, y3 + half * w3, y4 + half * w4
    one_x, one_y, two_x, two_y = x3 - x1, y3 - y1, x4 - x2, y4 - y2  # diagonals
    doubled = one_x * two_y - one_y * two_x
    root = _inverse_root(doubled)
    scale, rate = root * root, root * root * dt
    u_one, u_two, w_one, w_two = u3 - u1, u4 - u2, w3 - w1, w4 - w2
    l_xx, l_yx = (u_one * two_y - u_two * one_y) * rate, (w_one * two_y - w_two * one_y) * rate
    l_xy, l_yy = (u_two * one_x - u_one * two_x) * rate, (w_two * one_x - w_one * two_x) * rate
    turn = l_yx - l_xy
    skew_x, skew_y = x1 + x3 - x2 - x4, y1 + y3 - y2 - y4
    amplitude_x = (u1 + u3 - u2 - u4) * dt - l_xx * skew_x - l_xy * skew_y
    amplitude_y = (w1 + w3 - w2 - w4) * dt - l_yx * skew_x - l_yy * skew_y

    p = p_old + 0.5 * mean_stiffness * (l_xx + l_yy)
    q = q_old + shear * (l_xx - l_yy) - turn * s_old
    s = s_old + shear * (l_yx + l_xy) + turn * q_old
    m, by_mean, by_rest = _returned(p, q, s, tl.load(numbers + 3), tl.load(numbers + 4))
    m *= tl.load(numbers + 5)
    p, q, s = p * by_mean, q * by_rest, s * by_rest
    thickness *= _exp((p_old - p) * tl.load(numbers + 6) - 2.0 * m * p)
    plastic = m * doubled * thickness

    limit = doubled * root * thickness * tl.load(numbers + 8)
    stiffness = thickness * tl.load(numbers + 7)
    g = g_old - 0.5 * turn * h_old + amplitude_x * stiffness
    h = h_old + 0.5 * turn * g_old + amplitude_y * stiffness
    g, h = tl.maximum(tl.minimum(g, limit), -limit), tl.maximum(tl.minimum(h, limit), -limit)
    resisted = 0.5 * ((g_old + g) * amplitude_x + (h_old + h) * amplitude_y)

    thin = 0.5 * thickness
    skew_x, skew_y = skew_x * scale, skew_y * scale
    xx, yx = (p + q) * thin - g * skew_x, s * thin - h * skew_x  # on faces x
    xy, yy = s * thin - g * skew_y, (p - q) * thin - h * skew_y  # on faces y
    f_one_x, f_one_y = xx * two_y - xy * two_x, yx * two_y - yy * two_x
    f_two_x, f_two_y = xy * one_x - xx * one_y, yy * one_x - yx * one_y
    return p, q, s, thickness, g, h, plastic, resisted, f_one_x, f_one_y, f_two_x, f_two_y


@triton.jit
def _load(pointer, at, size, there):
    """Both components of a field, `size` apart."""
    return tl.load(pointer + at, there, 0.0), tl.load(pointer + size + at, there, 0.0)


@triton.jit
def _store(pointer, at, size, x, y, there):
    tl.store(pointer + at, x, there)
    tl.store(pointer + size + at, y, there)


@triton.jit
def _element_kernel(
    x_pointer, v_pointer,  # (2, J, I, b)
    p_pointer, q_pointer, s_pointer, thickness_pointer, hourglass_work_pointer, plastic_work_pointer,  # (e)
    hourglass_pointer,  # (2, e)
    passed_pointer,  # (4, e): forces along both diagonals
    numbers, columns, b, node_size, element_size,  # columns of elements; J I b; e
    LANES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there = at < element_size
    element, block = at // b, at % b
    one = ((element // columns) * (columns + 1) + element % columns) * b + block  # the lower left node
    two, four = one + b, one + (columns + 1) * b
    three = four + b
    u1, w1 = _load(v_pointer, one, node_size, there)
    u2, w2 = _load(v_pointer, two, node_size, there)
    u3, w3 = _load(v_pointer, three, node_size, there)
    u4, w4 = _load(v_pointer, four, node_size, there)
    x1, y1 = tl.load(x_pointer + one, there, 0.0), tl.load(x_pointer + node_size + one, there, 0.0)
    x2, y2 = tl.load(x_pointer + two, there, 1.0), tl.load(x_pointer + node_size + two, there, 0.0)
    x3, y3 = tl.load(x_pointer + three, there, 1.0), tl.load(x_pointer + node_size + three, there, 1.0)
    x4, y4 = tl.load(x_pointer + four, there, 0.0), tl.load(x_pointer + node_size + four, there, 1.0)
    g, h = _load(hourglass_pointer, at, element_size, there)
    p, q, s, thickness, g, h, plastic, resisted, one_x, one_y, two_x, two_y = _deformed(
        x1, y1, u1, w1, x2, y2, u2, w2, x3, y3, u3, w3, x4, y4, u4, w4, tl.load(p_pointer + at, there, 0.0),
        tl.load(q_pointer + at, there, 0.0), tl.load(s_pointer + at, there, 0.0),
        tl.load(thickness_pointer + at, there, 1.0), g, h, numbers,
    )  # fmt: skip
    tl.store(p_pointer + at, p, there)
    tl.store(q_pointer + at, q, there)
    tl.store(s_pointer + at, s, there)
    tl.store(thickness_pointer + at, thickness, there)
    _store(hourglass_pointer, at, element_size, g, h, there)
    tl.store(plastic_work_pointer + at, tl.load(plastic_work_pointer + at, there, 0.0) + plastic, there)
    tl.store(hourglass_work_pointer + at, tl.load(hourglass_work_pointer + at, there, 0.0) + resisted, there)
    _store(passed_pointer, at, element_size, one_x, one_y, there)
    _store(passed_pointer + 2 * element_size, at, element_size, two_x, two_y, there)


@triton.jit
def _node_kernel(
    x_pointer, v_pointer, force_pointer,  # (2, J, I, b), the last for the top row only
    inverse_pointer,  # (2, J, I)
    hourglass_pointer, passed_pointer,  # (2, e) and (4, e)
    top_pointer,  # (2, I, b): velocities of the top row before it meets the die
    numbers, rows, columns, b, node_size, element_size,  # rows and columns of elements
    LANES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there = at < node_size
    node, block = at // b, at % b
    row, column = node // (columns + 1), node % (columns + 1)
    above, below, right, left = row < rows, row > 0, column < columns, column > 0
    first = (row * columns + column) * b + block  # the element of which this node is the lower left one
    second = first - b
    fourth = first - columns * b
    third = fourth - b
    is_first, is_second = there & above & right, there & above & left
    is_third, is_fourth = there & below & left, there & below & right
    dt = tl.load(numbers)
    for axis in tl.static_range(2):
        hourglass = hourglass_pointer + axis * element_size
        one, two = passed_pointer + axis * element_size, passed_pointer + (2 + axis) * element_size
        force = tl.load(hourglass + first, is_first, 0.0) - tl.load(one + first, is_first, 0.0)
        force += tl.load(hourglass + third, is_third, 0.0) + tl.load(one + third, is_third, 0.0)
        force -= tl.load(hourglass + second, is_second, 0.0) + tl.load(two + second, is_second, 0.0)
        force += tl.load(two + fourth, is_fourth, 0.0) - tl.load(hourglass + fourth, is_fourth, 0.0)
        place = at + axis * node_size
        v = tl.load(v_pointer + place, there, 0.0)
        tl.store(x_pointer + place, tl.load(x_pointer + place, there, 0.0) + dt * v, there)
        v -= dt * tl.load(inverse_pointer + axis * (rows + 1) * (columns + 1) + node, there, 0.0) * force
        tl.store(v_pointer + place, v, there)
        tl.store(force_pointer + place, force, there & (row == rows))
        tl.store(top_pointer + (axis * (columns + 1) + column) * b + block, v, there & (row == rows))


@triton.jit
def _die(x, coefficients, knots, block, b, there, start, end, KNOTS: tl.constexpr):
    """Height and slope of a block's die."""
    inside = tl.minimum(tl.maximum(x, start), end)
    c = coefficients + block
    c0, c1 = tl.load(c, mask=there, other=0.0), tl.load(c + b, mask=there, other=0.0)
    c2, c3 = tl.load(c + 2 * b, mask=there, other=0.0), tl.load(c + 3 * b, mask=there, other=0.0)
    height = ((inside * c3 + c2) * inside + c1) * inside + c0
    slope = (3.0 * inside * c3 + 2.0 * c2) * inside + c1
    for k in tl.static_range(KNOTS):
        beyond = tl.maximum(inside - tl.load(knots + k), 0.0)
        cubic = tl.load(c + (4 + k) * b, mask=there, other=0.0) * beyond * beyond
        height += cubic * beyond
        slope += 3.0 * cubic
    return height, tl.where(x == inside, slope, 0.0)


@triton.jit
def _met(x_pointer, top_pointer, column, coefficients, knots, block, b, there, size, node_size, dt, depth, start, end,
         KNOTS: tl.constexpr):  # fmt: skip
    """Where a node of the top row goes in the next step: first without the die, then beside it."""
    at = column * b + block
    x = tl.load(x_pointer + at, mask=there, other=0.0) + dt * tl.load(top_pointer + at, mask=there, other=0.0)
    y = tl.load(x_pointer + at + node_size, mask=there, other=0.0)
    y += dt * tl.load(top_pointer + at + size, mask=there, other=0.0)
    height, slope = _die(x, coefficients, knots, block, b, there, start, end, KNOTS)
    over = tl.maximum(y - height + depth, 0.0) / (1.0 + slope * slope)
    return over * slope, -over, x + over * slope, y - over


@triton.jit
def _edge(x1, y1, x2, y2, mass1, mass2, coefficients, knots, block, b, there, depth, start, end, allowance,
          KNOTS: tl.constexpr, PLACES: tl.constexpr):  # fmt: skip
    """What moves the nodes of an edge that is too deep: the push, and the parts of both nodes."""
    deepest, share, slope = x1 * 0.0 - 1e30, x1 * 0.0, x1 * 0.0
    for k in tl.static_range(1, PLACES + 1):
        part = k / (PLACES + 1)
        height, inclined = _die(x1 + (x2 - x1) * part, coefficients, knots, block, b, there, start, end, KNOTS)
        inside = y1 + (y2 - y1) * part - height + depth
        deeper = inside > deepest
        deepest = tl.where(deeper, inside, deepest)
        slope = tl.where(deeper, inclined, slope)
        share = tl.where(deeper, part, share)
    left, right = (1.0 - share) / mass1, share / mass2
    size = tl.maximum(deepest - allowance, 0.0) / (1.0 + slope * slope) / ((1.0 - share) * left + share * right) * 0.5
    size = tl.where(there, size, 0.0)
    return size * slope, -size, left, right


@triton.jit
def _contact_kernel(
    x_pointer, v_pointer, force_pointer,  # (2, I, b), of the top row; components node_size apart
    top_pointer,  # (2, I, b)
    mass_pointer,  # (I,)
    inverse_pointer,  # of the top row; components `inverse_size` apart
    depth_pointer,
    die_work_pointer, impact_pointer,  # (I, b)
    coefficients, knots,  # (4 + KNOTS, b) and (KNOTS,)
    numbers, columns, b, node_size, inverse_size,  # columns of nodes
    KNOTS: tl.constexpr, PLACES: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    size = columns * b
    there = at < size
    column, block = at // b, at % b
    dt, speed, allowance = tl.load(numbers), tl.load(numbers + 9), tl.load(numbers + 10)
    start, end = tl.load(numbers + 11), tl.load(numbers + 12)
    depth = tl.load(depth_pointer) + speed * dt
    has_left, has_right = there & (column > 0), there & (column < columns - 1)
    shift_x, shift_y, x, y = _met(
        x_pointer, top_pointer, column, coefficients, knots, block, b, there, size, node_size, dt, depth, start, end,
        KNOTS,
    )  # fmt: skip
    _, _, x_left, y_left = _met(
        x_pointer, top_pointer, column - 1, coefficients, knots, block, b, has_left, size, node_size, dt, depth, start,
        end, KNOTS,
    )  # fmt: skip
    _, _, x_right, y_right = _met(
        x_pointer, top_pointer, column + 1, coefficients, knots, block, b, has_right, size, node_size, dt, depth,
        start, end, KNOTS,
    )  # fmt: skip
    mass = tl.load(mass_pointer + column, mask=there, other=1.0)
    mass_left = tl.load(mass_pointer + column - 1, mask=has_left, other=1.0)
    mass_right = tl.load(mass_pointer + column + 1, mask=has_right, other=1.0)
    push_x, push_y, _, part = _edge(
        x_left, y_left, x, y, mass_left, mass, coefficients, knots, block, b, has_left, depth, start, end, allowance,
        KNOTS, PLACES,
    )  # fmt: skip
    shift_x, shift_y = shift_x + push_x * part, shift_y + push_y * part
    push_x, push_y, part, _ = _edge(
        x, y, x_right, y_right, mass, mass_right, coefficients, knots, block, b, has_right, depth, start, end,
        allowance, KNOTS, PLACES,
    )  # fmt: skip
    shift_x, shift_y = shift_x + push_x * part, shift_y + push_y * part
    gained_x, gained_y = shift_x / dt, shift_y / dt
    u, w = _load(top_pointer, at, size, there)
    by_x, by_y = _load(inverse_pointer, column, inverse_size, there)
    force_x, force_y = _load(force_pointer, at, node_size, there)
    kick_x, kick_y = dt * by_x * force_x, dt * by_y * force_y
    _store(v_pointer, at, node_size, u + gained_x, w + gained_y, there)
    work = -speed * mass * gained_y
    twice = mass * (gained_x * (2.0 * u + kick_x + gained_x) + gained_y * (2.0 * w + kick_y + gained_y))
    tl.store(die_work_pointer + at, tl.load(die_work_pointer + at, there, 0.0) + work, there)
    tl.store(impact_pointer + at, tl.load(impact_pointer + at, there, 0.0) + work - 0.5 * twice, there)


class FusedStep:
    """One step of dt for blocks without moving supports; calling it advances them."""

    def __init__(self, blocks: Blocks, dt: float) -> None:
        material, die, part = blocks.material, blocks.die, blocks.hourglass_part
        self._blocks, self._travel = blocks, 0.0 if die is None else die.speed * dt
        numbers = [
            *(dt, material.mean_stiffness, material.shear_modulus, 1 / material.yield_stress),
            *(6 * material.shear_modulus / material.mean_stiffness, 1 / material.mean_stiffness),
            2 * material.poisson_ratio / material.modulus,
            *(part * material.modulus / 12, part * material.yield_stress / math.sqrt(32)),
            *((0.0,) * 4 if die is None else (die.speed, ALLOWANCE, die.start, die.end)),
        ]
        self._numbers = torch.tensor(numbers, dtype=torch.float64, device=blocks.x.device)
        self._passed = blocks.x.new_empty(4, *blocks.p.shape)
        self._top = torch.empty_like(blocks.x[:, -1])

    def __call__(self) -> None:
        blocks, numbers = self._blocks, self._numbers
        rows, columns, b = blocks.p.shape
        node_size, element_size = blocks.x[0].numel(), blocks.p.numel()
        x, v, force = blocks.x, blocks.v, blocks.force
        _element_kernel[(triton.cdiv(element_size, _LANES),)](
            x, v, blocks.p, blocks.q, blocks.s, blocks.thickness, blocks.hourglass_work, blocks.plastic_work,
            blocks.hourglass, self._passed, numbers, columns, b, node_size, element_size, LANES=_LANES,
        )  # fmt: skip
        _node_kernel[(triton.cdiv(node_size, _LANES),)](
            x, v, force, blocks.inverse_mass, blocks.hourglass, self._passed, self._top, numbers, rows, columns, b,
            node_size, element_size, LANES=_LANES,
        )  # fmt: skip
        die = blocks.die
        if die is None:
            return
        blocks.depth.add_(self._travel)
        _contact_kernel[(triton.cdiv((columns + 1) * b, _LANES),)](
            x[:, -1], v[:, -1], force[:, -1], self._top, blocks.mass[-1], blocks.inverse_mass[:, -1], blocks.depth,
            blocks.die_work, blocks.impact, die.coefficients, die.knots, numbers, columns + 1, b, node_size,
            node_size // b, KNOTS=len(die.knots), PLACES=PLACES, LANES=_LANES,
        )  # fmt: skip

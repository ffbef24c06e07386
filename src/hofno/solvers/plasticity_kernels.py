r"""One step of blocks under dies in three kernels: elements, nodes, and the top row where it meets the die.

What is computed is `Blocks._advance`, in float64. Done operation by operation a step reads and writes some 3 kB for
each element; here it is about 320 bytes: positions, velocities, stress, thickness and the account of energies once
each, and the four forces that an element passes on to its nodes.

Arrays are those of `Blocks`, b innermost: neighbours in memory are blocks that do the same. The numbers of a step lie
in one float64 array, since the kernel language takes Python's floats as float32.
"""

# The kernel language is not Python to a type checker, nor are launch options:
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from hofno.solvers.perfect_plastic import TINY
from hofno.solvers.plasticity import ALLOWANCE, PLACES, Blocks

_LANES = 128


@triton.jit
def _excess(mean, rest, root):
    """(sqrt(F) / yield - 1) F of a stress with F = mean + rest, root = 1 / yield."""
    size = mean + rest
    return (tl.sqrt(size) * root - 1.0) * size


@triton.jit
def _element_kernel(
    x_pointer,  # (2, J, I, b)
    v_pointer,  # (2, J, I, b)
    p_pointer,  # (e)
    q_pointer,  # (e)
    s_pointer,  # (e)
    thickness_pointer,  # (e)
    hourglass_pointer,  # (2, e)
    hourglass_work_pointer,  # (e)
    plastic_work_pointer,  # (e)
    passed_pointer,  # (4, e): f_one and f_two
    numbers,
    columns,  # of elements
    b,
    node_size,  # J I b
    element_size,  # e
    LANES: tl.constexpr,
):
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there = at < element_size
    element, block = at // b, at % b
    one = ((element // columns) * (columns + 1) + element % columns) * b + block  # the lower left node
    two, four = one + b, one + (columns + 1) * b
    three = four + b
    dt, mean_stiffness, shear = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    root, growth, tiny = tl.load(numbers + 3), tl.load(numbers + 4), tl.load(numbers + 5)
    stiffness, strength = tl.load(numbers + 6), tl.load(numbers + 7)

    u1, u2 = tl.load(v_pointer + one, mask=there, other=0.0), tl.load(v_pointer + two, mask=there, other=0.0)
    u3, u4 = tl.load(v_pointer + three, mask=there, other=0.0), tl.load(v_pointer + four, mask=there, other=0.0)
    rising = v_pointer + node_size
    w1, w2 = tl.load(rising + one, mask=there, other=0.0), tl.load(rising + two, mask=there, other=0.0)
    w3, w4 = tl.load(rising + three, mask=there, other=0.0), tl.load(rising + four, mask=there, other=0.0)
    half = dt * 0.5
    x1 = tl.load(x_pointer + one, mask=there, other=0.0) + half * u1
    x2 = tl.load(x_pointer + two, mask=there, other=1.0) + half * u2
    x3 = tl.load(x_pointer + three, mask=there, other=1.0) + half * u3
    x4 = tl.load(x_pointer + four, mask=there, other=0.0) + half * u4
    upward = x_pointer + node_size
    y1 = tl.load(upward + one, mask=there, other=0.0) + half * w1
    y2 = tl.load(upward + two, mask=there, other=0.0) + half * w2
    y3 = tl.load(upward + three, mask=there, other=1.0) + half * w3
    y4 = tl.load(upward + four, mask=there, other=1.0) + half * w4

    one_x, one_y, two_x, two_y = x3 - x1, y3 - y1, x4 - x2, y4 - y2  # diagonals
    doubled = one_x * two_y - one_y * two_x
    scale = 1.0 / doubled
    rate = scale * dt
    u_one, u_two, w_one, w_two = u3 - u1, u4 - u2, w3 - w1, w4 - w2
    l_xx, l_yx = (u_one * two_y - u_two * one_y) * rate, (w_one * two_y - w_two * one_y) * rate
    l_xy, l_yy = (u_two * one_x - u_one * two_x) * rate, (w_two * one_x - w_one * two_x) * rate
    turn = l_yx - l_xy
    skew_x, skew_y = x1 + x3 - x2 - x4, y1 + y3 - y2 - y4
    amplitude_x = (u1 + u3 - u2 - u4) * dt - l_xx * skew_x - l_xy * skew_y
    amplitude_y = (w1 + w3 - w2 - w4) * dt - l_yx * skew_x - l_yy * skew_y

    p_old = tl.load(p_pointer + at, mask=there, other=0.0)
    q_old = tl.load(q_pointer + at, mask=there, other=0.0)
    s_old = tl.load(s_pointer + at, mask=there, other=0.0)
    p = p_old + 0.5 * mean_stiffness * (l_xx + l_yy)
    q = q_old + shear * (l_xx - l_yy) - turn * s_old
    s = s_old + shear * (l_yx + l_xy) + turn * q_old
    mean, rest, six = p * p, 3.0 * (q * q + s * s), 6.0 * shear
    m = tl.maximum(_excess(mean, rest, root) / (mean * mean_stiffness + rest * six + tiny), 0.0)
    by_mean, by_rest = 1.0 / (m * mean_stiffness + 1.0), 1.0 / (m * six + 1.0)
    left, other = by_mean * by_mean * mean, by_rest * by_rest * rest
    slope = by_mean * left * mean_stiffness + by_rest * other * six + tiny
    m = tl.maximum(m + _excess(left, other, root) / slope, 0.0)
    p = p / (m * mean_stiffness + 1.0)
    kept = 1.0 / (m * six + 1.0)
    q, s = q * kept, s * kept
    thickness = tl.load(thickness_pointer + at, mask=there, other=1.0)
    thickness = thickness * tl.exp((p_old - p) * growth - 2.0 * m * p)
    tl.store(p_pointer + at, p, mask=there)
    tl.store(q_pointer + at, q, mask=there)
    tl.store(s_pointer + at, s, mask=there)
    tl.store(thickness_pointer + at, thickness, mask=there)
    work = tl.load(plastic_work_pointer + at, mask=there, other=0.0)
    tl.store(plastic_work_pointer + at, work + m * doubled * thickness, mask=there)

    across = at + element_size
    g_old = tl.load(hourglass_pointer + at, mask=there, other=0.0)
    h_old = tl.load(hourglass_pointer + across, mask=there, other=0.0)
    limit = tl.sqrt(doubled) * thickness * strength
    g = g_old - 0.5 * turn * h_old + amplitude_x * thickness * stiffness
    h = h_old + 0.5 * turn * g_old + amplitude_y * thickness * stiffness
    g, h = tl.maximum(tl.minimum(g, limit), -limit), tl.maximum(tl.minimum(h, limit), -limit)
    tl.store(hourglass_pointer + at, g, mask=there)
    tl.store(hourglass_pointer + across, h, mask=there)
    work = tl.load(hourglass_work_pointer + at, mask=there, other=0.0)
    work += 0.5 * ((g_old + g) * amplitude_x + (h_old + h) * amplitude_y)
    tl.store(hourglass_work_pointer + at, work, mask=there)

    thin = 0.5 * thickness
    skew_x, skew_y = skew_x * scale, skew_y * scale
    xx, yx = (p + q) * thin - g * skew_x, s * thin - h * skew_x  # on faces x
    xy, yy = s * thin - g * skew_y, (p - q) * thin - h * skew_y  # on faces y
    tl.store(passed_pointer + at, xx * two_y - xy * two_x, mask=there)
    tl.store(passed_pointer + across, yx * two_y - yy * two_x, mask=there)
    tl.store(passed_pointer + across + element_size, xy * one_x - xx * one_y, mask=there)
    tl.store(passed_pointer + across + 2 * element_size, yy * one_x - yx * one_y, mask=there)


@triton.jit
def _node_kernel(
    x_pointer,  # (2, J, I, b)
    v_pointer,  # (2, J, I, b)
    force_pointer,  # (2, J, I, b)
    inverse_pointer,  # (2, J, I)
    hourglass_pointer,  # (2, e)
    passed_pointer,  # (4, e)
    top_pointer,  # (2, I, b): velocities of the top row before it meets the die
    numbers,
    rows,  # of elements
    columns,  # of elements
    b,
    node_size,
    element_size,
    LANES: tl.constexpr,
):
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
        force = tl.load(hourglass + first, mask=is_first, other=0.0) - tl.load(one + first, mask=is_first, other=0.0)
        force += tl.load(hourglass + third, mask=is_third, other=0.0) + tl.load(one + third, mask=is_third, other=0.0)
        force -= tl.load(hourglass + second, mask=is_second, other=0.0)
        force -= tl.load(two + second, mask=is_second, other=0.0)
        force += tl.load(two + fourth, mask=is_fourth, other=0.0)
        force -= tl.load(hourglass + fourth, mask=is_fourth, other=0.0)
        place = at + axis * node_size
        v = tl.load(v_pointer + place, mask=there, other=0.0)
        tl.store(x_pointer + place, tl.load(x_pointer + place, mask=there, other=0.0) + dt * v, mask=there)
        inverse = tl.load(inverse_pointer + axis * (rows + 1) * (columns + 1) + node, mask=there, other=0.0)
        v -= dt * inverse * force
        tl.store(v_pointer + place, v, mask=there)
        tl.store(force_pointer + place, force, mask=there)
        to = top_pointer + axis * (columns + 1) * b + column * b + block
        tl.store(to, v, mask=there & (row == rows))


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
    x_pointer,  # (2, I, b), of the top row; components node_size apart
    v_pointer,  # likewise
    force_pointer,  # likewise
    top_pointer,  # (2, I, b)
    mass_pointer,  # (I,)
    inverse_pointer,  # of the top row; components `inverse_size` apart
    depth_pointer,
    die_work_pointer,  # (I, b)
    impact_pointer,  # (I, b)
    coefficients,  # (4 + KNOTS, b)
    knots,  # (KNOTS,)
    numbers,
    columns,  # of nodes
    b,
    node_size,
    inverse_size,
    KNOTS: tl.constexpr,
    PLACES: tl.constexpr,
    LANES: tl.constexpr,
):
    at = tl.program_id(0) * LANES + tl.arange(0, LANES)
    size = columns * b
    there = at < size
    column, block = at // b, at % b
    dt, speed, allowance = tl.load(numbers), tl.load(numbers + 8), tl.load(numbers + 9)
    start, end = tl.load(numbers + 10), tl.load(numbers + 11)
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
    shift_x += push_x * part
    shift_y += push_y * part
    push_x, push_y, part, _ = _edge(
        x, y, x_right, y_right, mass, mass_right, coefficients, knots, block, b, has_right, depth, start, end,
        allowance, KNOTS, PLACES,
    )  # fmt: skip
    shift_x += push_x * part
    shift_y += push_y * part
    gained_x, gained_y = shift_x / dt, shift_y / dt
    u = tl.load(top_pointer + at, mask=there, other=0.0)
    w = tl.load(top_pointer + at + size, mask=there, other=0.0)
    kick_x = tl.load(inverse_pointer + column, mask=there, other=0.0)
    kick_x *= dt * tl.load(force_pointer + at, mask=there, other=0.0)
    kick_y = tl.load(inverse_pointer + inverse_size + column, mask=there, other=0.0)
    kick_y *= dt * tl.load(force_pointer + at + node_size, mask=there, other=0.0)
    tl.store(v_pointer + at, u + gained_x, mask=there)
    tl.store(v_pointer + at + node_size, w + gained_y, mask=there)
    work = -speed * mass * gained_y
    twice = mass * (gained_x * (2.0 * u + kick_x + gained_x) + gained_y * (2.0 * w + kick_y + gained_y))
    tl.store(die_work_pointer + at, tl.load(die_work_pointer + at, mask=there, other=0.0) + work, mask=there)
    lost = work - 0.5 * twice
    tl.store(impact_pointer + at, tl.load(impact_pointer + at, mask=there, other=0.0) + lost, mask=there)


class FusedStep:
    """One step of dt for blocks without moving supports; calling it advances them."""

    def __init__(self, blocks: Blocks, dt: float) -> None:
        material, die, part = blocks.material, blocks.die, blocks.hourglass_part
        self._blocks, self._travel = blocks, 0.0 if die is None else die.speed * dt
        numbers = [
            *(dt, material.mean_stiffness, material.shear_modulus, 1 / material.yield_stress),
            *(2 * material.poisson_ratio / material.modulus, TINY),
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
            x, v, blocks.p, blocks.q, blocks.s, blocks.thickness, blocks.hourglass, blocks.hourglass_work,
            blocks.plastic_work, self._passed, numbers, columns, b, node_size, element_size, LANES=_LANES,
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

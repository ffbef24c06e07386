"""Euler: Roe's flux against eigenvalues, free stream, conservation, an exact vortex, and the steady solver."""

from __future__ import annotations

import math

import pytest
import torch
from bent_flows import bent, disturbed, start
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from hofno.errors import ShapeError, SolverError
from hofno.problems.airfoil_mesh import c_grid
from hofno.solvers import euler_steady
from hofno.solvers.euler import (
    GAMMA,
    Euler,
    conservative,
    free_stream,
    mach_number,
    minmod,
    primitive,
    roe_flux,
    total_enthalpy,
)
from hofno.solvers.euler_drag import entropy_drag
from hofno.solvers.euler_lines import LinePreconditioner, _face, _jacobian
from hofno.solvers.euler_steady import solve_steady


def states(count: int, speed: float = 1.0) -> Tensor:
    """Random (rho, u, v, p), (count, 4)."""
    q = torch.rand(count, 4, dtype=torch.float64)
    return torch.stack((0.5 + q[:, 0], speed * (2 * q[:, 1] - 1), speed * (2 * q[:, 2] - 1), 0.5 + q[:, 3]), 1)


def physical_flux(w: Tensor, n: Tensor) -> Tensor:
    """F(w).n written in conservative variables, (4,), (2,) -> (4,)"""
    rho, mx, my, energy = w
    u, v = mx / rho, my / rho
    p = (GAMMA - 1) * (energy - 0.5 * rho * (u * u + v * v))
    through = u * n[0] + v * n[1]
    return torch.stack((rho * through, mx * through + p * n[0], my * through + p * n[1], (energy + p) * through))


def vortex(n: int) -> tuple[Tensor, Tensor]:
    """Supersonic vortex, Mach 2.25 on the inner radius 1: nodes (1, 2, 2n+1, n+1) and the exact (rho, u, v, p)."""
    angle = torch.linspace(0, math.pi / 2, 2 * n + 1, dtype=torch.float64)[:, None]
    radius = torch.linspace(1, 1.384, n + 1, dtype=torch.float64)
    nodes = torch.stack((torch.sin(angle) * radius, torch.cos(angle) * radius))[None]
    r = torch.linalg.vector_norm(nodes, dim=1)
    rho = (1 + 0.5 * (GAMMA - 1) * 2.25**2 * (1 - r**-2)) ** (1 / (GAMMA - 1))
    spin = 2.25 / r**2
    return nodes, torch.stack((rho, spin * nodes[:, 1], -spin * nodes[:, 0], rho**GAMMA / GAMMA), 1)


class TestFlux:
    def test_variables(self) -> None:
        q = states(20)
        torch.testing.assert_close(primitive(conservative(q)), q)
        one = torch.tensor([[1.0, 0.8 * math.sqrt(GAMMA), 0.0, 1.0]], dtype=torch.float64)
        assert float(mach_number(one)) == pytest.approx(0.8)
        assert float(total_enthalpy(one)) == pytest.approx(3.5 + 0.5 * 0.64 * GAMMA)
        assert free_stream(0.8, 90.0).tolist() == pytest.approx([1, 0, 0.8 * math.sqrt(GAMMA), 1], abs=1e-15)

    @pytest.mark.parametrize("speed", [0.5, 2.0])
    def test_roe_is_the_linearised_upwind_flux(self, speed: float) -> None:
        """Against |A| from numerical eigenvectors of the differentiated flux at Roe's average."""
        left, right, normals = states(30, speed), states(30, speed), torch.randn(30, 2, dtype=torch.float64)
        found = roe_flux(left, right, normals)
        for ql, qr, n, flux in zip(left, right, normals, found, strict=True):
            wl, wr = conservative(torch.stack((ql, qr)))
            s_l, s_r = torch.sqrt(ql[0]), torch.sqrt(qr[0])
            mean = lambda a, b, s_l=s_l, s_r=s_r: (s_l * a + s_r * b) / (s_l + s_r)  # noqa: E731
            h_l, h_r = total_enthalpy(torch.stack((ql, qr)))
            u, v, h, rho = mean(ql[1], qr[1]), mean(ql[2], qr[2]), mean(h_l, h_r), s_l * s_r
            p = rho * (GAMMA - 1) / GAMMA * (h - 0.5 * (u * u + v * v))
            at = conservative(torch.stack((rho, u, v, p))[None])[0]
            a = torch.autograd.functional.jacobian(lambda w, n=n: physical_flux(w, n), at)
            torch.testing.assert_close(a @ (wr - wl), physical_flux(wr, n) - physical_flux(wl, n))  # Roe's property
            values, vectors = torch.linalg.eig(a)
            size = (vectors @ torch.diag(values.real.abs()).to(vectors) @ torch.linalg.inv(vectors)).real
            expected = 0.5 * (physical_flux(wl, n) + physical_flux(wr, n) - size @ (wr - wl))
            torch.testing.assert_close(flux, expected, rtol=1e-9, atol=1e-9)

    def test_a_normal_shock_stands_still(self) -> None:
        """Rankine-Hugoniot at Mach 2: both sides and the flux between them are one flux."""
        rho, p, mach = 8 / 3, 4.5, 2.0
        before = torch.tensor([[1.0, mach * math.sqrt(GAMMA), 0.3, 1.0]], dtype=torch.float64)
        behind = torch.tensor([[rho, mach * math.sqrt(GAMMA) / rho, 0.3, p]], dtype=torch.float64)
        n = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        expected = physical_flux(conservative(before)[0], n[0])
        torch.testing.assert_close(physical_flux(conservative(behind)[0], n[0]), expected)
        torch.testing.assert_close(roe_flux(before, behind, n)[0], expected)
        torch.testing.assert_close(roe_flux(behind, before, -n)[0], -expected)

    def test_minmod(self) -> None:
        a = torch.tensor([1.0, 2.0, -1.0, -3.0, 1.0, -1.0, 0.0])
        b = torch.tensor([2.0, 1.0, -2.0, -2.0, -1.0, 1.0, 5.0])
        assert minmod(a, b).tolist() == [1, 1, -1, -2, 0, 0, 0]
        assert torch.equal(minmod(a, b), minmod(b, a))


class TestResidual:
    @pytest.mark.parametrize("degrees", [0.0, 37.0])
    def test_free_stream_is_preserved_to_rounding(self, degrees: float) -> None:
        """With the body's surface open every volume is closed; with a wall all but the nodes of the wall."""
        nodes = bent()
        flow = Euler(nodes, free_stream(0.8, degrees), wake=4, wall=False)
        assert float(flow.residual(flow.uniform()).abs().max()) < 2e-12  # areas reach 80
        walled = Euler(nodes, free_stream(0.8, degrees), wake=4)
        residual = walled.residual(walled.uniform())
        assert float(residual[:, :, 4:17, 0].abs().max()) > 1e-3
        residual[:, :, 4:17, 0] = 0
        assert float(residual.abs().max()) < 2e-12

    def test_conservation(self) -> None:
        """What leaves all volumes is what crosses the outer boundary, and the pressure on the wall."""
        flow = Euler(bent(), free_stream(0.8), wake=4)
        state = disturbed(flow)
        q = primitive(state)
        residual = flow.residual(state)
        residual[:, :, -5:, 0] = 0  # the cut counts once
        outside = sum(
            roe_flux(mine, theirs, normal).sum(-1)
            for mine, theirs, normal in (
                (q[..., -1], flow.exterior[..., -1], flow.outer_normal),
                (q[:, :, 0], flow.exterior[:, :, 0], flow.start_normal),
                (q[:, :, -1], flow.exterior[:, :, -1], flow.end_normal),
            )
        )
        assert isinstance(outside, Tensor)
        outside[:, 1:3] += flow.force(state)
        torch.testing.assert_close(residual.sum((-2, -1)), outside, rtol=1e-10, atol=1e-10)

    def test_both_sides_of_the_cut_hold_one_number(self) -> None:
        flow = Euler(bent(), free_stream(0.8), wake=4)
        residual = flow.residual(disturbed(flow))
        assert torch.equal(residual[:, :, :5, 0], residual[:, :, -5:, 0].flip(-1))

    def test_mirrored_meshes_give_mirrored_flows(self) -> None:
        """Reflection in y turns the orientation of the mesh and the sign of v, nothing else."""
        flow = Euler(bent(), free_stream(0.8, 5.0), wake=4)
        mirror = flow.nodes.new_tensor([1.0, -1.0])[:, None, None]
        other = Euler(flow.nodes * mirror, free_stream(0.8, -5.0), wake=4)
        sign = flow.nodes.new_tensor([1.0, 1.0, -1.0, 1.0])[:, None, None]
        state = disturbed(flow)
        torch.testing.assert_close(other.residual(state * sign), flow.residual(state) * sign, rtol=1e-10, atol=1e-10)

    def test_linear_fields_are_extended_exactly(self) -> None:
        """A field linear in x has one gradient everywhere, so both states of an edge are its middle."""
        nodes, _ = vortex(5)
        flow = Euler(nodes, free_stream(0.5))
        q = 2 + 0.1 * torch.stack([nodes[:, 0], nodes[:, 1], nodes[:, 0] - nodes[:, 1], -nodes[:, 0]], 1)
        left_i, right_i, left_j, right_j = flow._edge_states(q)
        torch.testing.assert_close(left_i, 0.5 * (q[:, :, 1:] + q[:, :, :-1]))
        torch.testing.assert_close(right_i, left_i)
        torch.testing.assert_close(left_j, 0.5 * (q[..., 1:] + q[..., :-1]))
        torch.testing.assert_close(right_j, left_j)

    def test_gradients_fit_each_neighbour_once(self) -> None:
        """Least squares at nodes of the cut, the trailing edge, the wall and the outer boundary, node by node."""
        nodes = bent(1)
        flow = Euler(nodes, free_stream(0.8), wake=4)
        x, y = nodes[:, :1], nodes[:, 1:]
        q = torch.sin(x / 3) * torch.cos(y / 5 + x) * torch.ones(1, 4, 1, 1, dtype=torch.float64)
        found = torch.stack(flow._gradient(q.diff(dim=-2), q.diff(dim=-1)))[:, 0, 0]  # (2, I, J)
        neighbours = {
            (2, 0): [(1, 0), (3, 0), (2, 1), (18, 1)],
            (18, 0): [(17, 0), (19, 0), (18, 1), (2, 1)],
            (0, 0): [(1, 0), (0, 1), (20, 1)],
            (4, 0): [(3, 0), (5, 0), (15, 0), (4, 1), (16, 1)],
            (8, 0): [(7, 0), (9, 0), (8, 1)],
            (7, 3): [(6, 3), (8, 3), (7, 2), (7, 4)],
            (20, 6): [(19, 6), (20, 5)],
        }
        for (i, j), near in neighbours.items():
            steps = torch.stack([nodes[0, :, a, b] - nodes[0, :, i, j] for a, b in near])
            rises = torch.stack([q[0, 0, a, b] - q[0, 0, i, j] for a, b in near])
            torch.testing.assert_close(found[:, i, j], torch.linalg.lstsq(steps, rises[:, None]).solution[:, 0])

    def test_bad_meshes(self) -> None:
        nodes, _ = vortex(5)
        stream = free_stream(0.8)
        folded = nodes.clone()
        folded[:, :, 3, 2] = nodes[:, :, 5, 4]
        for bad in (folded, nodes * math.nan):
            with pytest.raises(SolverError, match="folded, empty or not finite"):
                Euler(bad, stream)
        for shape in ((1, 2, 4, 5), (1, 3, 5, 5), (2, 5, 5), (1, 2, 5, 2), (0, 2, 5, 5)):
            with pytest.raises(ShapeError, match=r"expected nodes of shape \(b, 2, I, J\)"):
                Euler(torch.zeros(shape), stream)
        with pytest.raises(ShapeError, match="smaller wake"):
            Euler(nodes, stream, wake=5)
        with pytest.raises(SolverError, match="Mach number"):
            free_stream(0.0)


class TestLines:
    def test_jacobian_of_the_flux(self) -> None:
        q, normals = states(6), torch.randn(6, 2, dtype=torch.float64)
        found = _jacobian(q, normals)
        for k in range(6):
            expected = torch.autograd.functional.jacobian(
                lambda w, k=k: physical_flux(w, normals[k]), conservative(q)[k]
            )
            torch.testing.assert_close(found[..., k], expected)

    def test_face_blocks_split_the_jacobian_by_sign(self) -> None:
        q, normals = states(6, speed=0.7), torch.randn(6, 2, dtype=torch.float64)
        ahead, back, radius = _face(q, q, normals)
        torch.testing.assert_close(ahead + back, _jacobian(q, normals))
        for k in range(6):
            values = torch.linalg.eigvals(ahead[..., k]).real
            assert float(values.min()) > -1e-10
            assert float(torch.linalg.eigvals(back[..., k]).real.max()) < 1e-10
            largest = float(torch.linalg.eigvals(_jacobian(q, normals)[..., k]).abs().max())
            assert float(radius[k]) == pytest.approx(largest)

    def test_both_sweeps_against_dense_matrices(self) -> None:
        """Blocks collected face by face, the two copies of a node of the cut being one node across the cut."""
        n_i, n_j, w = 9, 3, 2
        flow = Euler(bent(1, w, 4, n_j - 1), free_stream(0.8), wake=w)
        state = disturbed(flow)
        q = primitive(state)
        lines = LinePreconditioner(flow, state, torch.full((1,), 3.0, dtype=torch.float64))
        faces = [((i, j), (i + 1, j), flow.normal_i[:, :, i, j]) for i in range(n_i - 1) for j in range(n_j)]
        faces += [((i, j), (i, j + 1), flow.normal_j[:, :, i, j]) for i in range(n_i) for j in range(n_j - 1)]

        def one(i: int, j: int) -> tuple[int, int]:
            return (n_i - 1 - i, 0) if j == 0 and i >= n_i - 1 - w else (i, j)

        places = sorted({one(i, j) for i in range(n_i) for j in range(n_j)})
        row = {place: k for k, place in enumerate(places)}
        size = len(places)
        diagonal, along_i, along_j = torch.zeros(3, size, size, 4, 4, dtype=torch.float64)
        for a, b, normal in faces:
            ahead, back, radius = (part[..., 0] for part in _face(q[:, :, *a], q[:, :, *b], normal))
            k, m = row[one(*a)], row[one(*b)]
            time = 0.5 * radius / 3.0 * torch.eye(4, dtype=torch.float64)
            diagonal[k, k] += ahead + time
            diagonal[m, m] += time - back
            along = along_i if a[1] == b[1] else along_j
            along[k, m] += back
            along[m, k] -= ahead
        for i in range(n_i):
            diagonal[row[i, n_j - 1], row[i, n_j - 1]] += _face(
                q[..., i, -1], q[..., i, -1], flow.outer_normal[..., i]
            )[0][..., 0]
            k, (nx, ny), (_, u, v, _) = row[one(i, 0)], flow.body_normal[0, :, i], q[0, :, i, 0]
            push = torch.stack((0 * u, nx, ny, 0 * u))
            diagonal[k, k] += torch.outer(push, 0.4 * torch.stack(((u * u + v * v) / 2, -u, -v, 1 + 0 * u)))
        for j in range(n_j):
            for i, normals in ((0, flow.start_normal), (n_i - 1, flow.end_normal)):
                k = row[one(i, j)]
                diagonal[k, k] += _face(q[..., i, j], q[..., i, j], normals[..., j])[0][..., 0]

        def flat(blocks: Tensor) -> Tensor:
            return blocks.permute(0, 2, 1, 3).reshape(4 * size, 4 * size)

        right = flow.join_(torch.randn(1, 4, n_i, n_j, dtype=torch.float64))
        given = torch.stack([right[0, :, i, j] for i, j in places]).flatten()
        middle = torch.linalg.solve(flat(diagonal + along_j), given)
        found = lines._lines_j.solve(right.permute(3, 1, 0, 2).reshape(n_j, 4, n_i)).permute(1, 2, 0)  # (4, I, J)
        expected = middle.reshape(size, 4)
        for place, k in row.items():
            torch.testing.assert_close(found[:, *place], expected[k], rtol=1e-9, atol=1e-9)
        solved = torch.linalg.solve(flat(diagonal + along_i), flat(diagonal) @ middle).reshape(size, 4)
        whole = lines.solve(right)[0]
        for place, k in row.items():
            if place[1] > 0:
                torch.testing.assert_close(whole[:, *place], solved[k], rtol=1e-9, atol=1e-9)
        # the line along cut and body: both copies of the trailing edge see only their own side, and are averaged
        copies = [row[one(i, 0)] for i in range(n_i)]
        line = torch.zeros(n_i, n_i, 4, 4, dtype=torch.float64)
        for i, k in enumerate(copies):
            line[i, i] = diagonal[k, k]
            if i > 0:
                line[i, i - 1], line[i - 1, i] = along_i[k, copies[i - 1]], along_i[copies[i - 1], k]
        given = (flat(diagonal) @ middle).reshape(size, 4)[copies].flatten()
        apart = torch.linalg.solve(line.permute(0, 2, 1, 3).reshape(4 * n_i, 4 * n_i), given).reshape(n_i, 4)
        apart[: w + 1] = 0.5 * (apart[: w + 1] + apart[n_i - 1 - w :].flip(0))
        torch.testing.assert_close(whole[:, : n_i - w - 1, 0].T, apart[: n_i - w - 1], rtol=1e-9, atol=1e-9)

    def test_small_time_steps_only_scale(self) -> None:
        flow = Euler(bent(), free_stream(0.8), wake=4)
        lines = LinePreconditioner(flow, disturbed(flow), torch.full((2,), 1e-9, dtype=torch.float64))
        right = flow.join_(torch.randn(2, 4, 21, 7, dtype=torch.float64))
        torch.testing.assert_close(lines.solve(right) * lines.time_term, right, rtol=1e-6, atol=1e-6)

    def test_it_nearly_inverts_the_residual(self) -> None:
        """At moderate CFL numbers twenty vectors solve the second-order system to three digits."""
        flow = Euler(bent(), free_stream(0.8), wake=4)
        x, y = flow.nodes[:, :1], flow.nodes[:, 1:]
        state = conservative(flow.exterior * (1 + 0.05 * torch.sin(x / 7 + 1) * torch.cos(y / 9 + 2)))
        lines = LinePreconditioner(flow, state, torch.full((2,), 5.0, dtype=torch.float64))
        residual = flow.residual(state)

        def operator(v: Tensor) -> Tensor:
            size = 1e-8 / v.abs().amax((1, 2, 3), keepdim=True)
            return lines.time_term * v + (flow.residual(state + size * v) - residual) / size

        right = residual
        found, left = euler_steady._gmres(operator, lines.solve, right, 20)
        assert float(left.max()) < 1e-3
        miss = (operator(found) - right).flatten(1).norm(dim=1) / right.flatten(1).norm(dim=1)
        assert float(miss.max()) < 0.03  # the limiter's kinks are in between


class TestSteady:
    def test_order_of_convergence_with_a_curved_wall(self) -> None:
        """Supersonic vortex between arcs, the inner one a wall: density and total enthalpy converge with order 2."""
        errors = []
        for n in (4, 8, 16):
            nodes, exact = vortex(n)
            flow = Euler(nodes, exact)
            found = solve_steady(flow, flow.uniform(), tolerance=1e-5)
            assert bool(found.converged)
            assert int(found.steps) <= 15
            q = primitive(found.state)
            enthalpy = (total_enthalpy(q) - total_enthalpy(exact)).abs().mean()
            errors.append((float((q - exact)[:, 0].abs().mean()), float(enthalpy)))
        for coarse, fine, order in zip(errors[:-1], errors[1:], (1.4, 1.7), strict=True):
            assert all(math.log2(a / b) > order for a, b in zip(coarse, fine, strict=True))
        assert errors[-1][0] < 4e-3

    def test_symmetric_foil(self) -> None:
        """No lift, a symmetric flow, a sonic pocket, and total enthalpy constant outside the nose."""
        flow = Euler(c_grid(torch.zeros(1, 8), 10, 24, 10), free_stream(0.8), wake=10)
        found = solve_steady(flow)
        assert bool(found.converged)
        assert int(found.steps) <= 30
        q = primitive(found.state)
        drag, lift = (flow.force(found.state) / (0.5 * GAMMA * 0.64))[0].tolist()
        assert abs(lift) < 1e-6
        assert 0.02 < drag < 0.12  # the mesh is coarse: it falls to 0.0085 with the mesh size
        mach = mach_number(q)
        torch.testing.assert_close(mach, mach.flip(-2), rtol=0, atol=1e-5)
        assert 1.05 < float(mach.max()) < 1.4
        enthalpy = total_enthalpy(q) / total_enthalpy(flow.exterior) - 1
        assert float(enthalpy.square().mean().sqrt()) < 0.01

    def test_drag_is_the_entropy_made(self) -> None:
        """By pressure on the wall and by entropy; without a shock the nose makes it, with one the shock its share."""
        for mach, shares in ((0.5, (0.85, 1.0)), (0.8, (0.6, 0.85))):
            flow = Euler(c_grid(torch.zeros(1, 8), 10, 24, 10), free_stream(mach), wake=10)
            state = solve_steady(flow, tolerance=1e-5).state
            made = entropy_drag(flow, state)[0]
            (x, y), near = flow.nodes[0], torch.zeros_like(made, dtype=torch.bool)
            near[10:35] = True
            near &= y.abs() < 1
            whole = float(made[near | (x < 2) & (y.abs() < 1)].sum())
            drag = float(flow.force(state)[0, 0] / (0.5 * GAMMA * mach**2))
            assert whole == pytest.approx(drag, rel=0.15)
            nose, shock = (float(made[near & part].sum()) for part in (x < 0.25, (x >= 0.25) & (x < 0.8)))
            assert shares[0] < nose / (nose + shock) < shares[1]
        assert 0.004 < shock < 0.012  # literature: 0.008 to 0.009

    def test_a_shock_makes_the_entropy_of_its_jump(self) -> None:
        """A normal shock at Mach 2 in a channel: rho u (s2 - s1), wherever on the mesh it stands."""
        y, x = torch.meshgrid(torch.linspace(0, 1, 3).double(), torch.linspace(0, 2, 9).double(), indexing="ij")
        nodes = torch.stack((x.T, y.T))[None]
        flow = Euler(nodes, free_stream(2.0), wall=False)
        behind = torch.tensor([8 / 3, 2.0 * math.sqrt(GAMMA) * 3 / 8, 0.0, 4.5], dtype=torch.float64)
        q = torch.where(x.T > 1, behind[:, None, None], free_stream(2.0)[:, None, None])[None]
        made = entropy_drag(flow, conservative(q))[0]
        speed = 2.0 * math.sqrt(GAMMA)
        expected = speed * math.log(4.5 / (8 / 3) ** GAMMA) / (GAMMA - 1) / (0.5 * speed**3)
        assert float(made[1:-1].sum()) == pytest.approx(expected)
        assert float(made[x.T < 0.8].abs().max()) < 1e-14

    def test_flows_do_not_depend_on_their_neighbours(self) -> None:
        designs = 0.1 * torch.rand(3, 8, dtype=torch.float64) - 0.05
        pairs = [designs[[0, 1]], designs[[0, 2]]]
        found = [
            solve_steady(
                Euler(c_grid(pair, 5, 12, 5), free_stream(0.8), wake=5),
                tolerance=1e-2,
                wanted=torch.tensor([True, False]),
            )
            for pair in pairs
        ]
        assert bool(found[0].converged[0])
        assert torch.equal(found[0].state[0], found[1].state[0])
        assert int(found[0].steps[0]) == int(found[1].steps[0])

    def test_unfinished_flows_are_marked(self) -> None:
        flow = Euler(c_grid(torch.zeros(2, 8), 5, 12, 5), free_stream(0.8), wake=5)
        seen: list[tuple[int, float]] = []
        found = solve_steady(flow, max_steps=2, watch=lambda step, rest: seen.append((step, float(rest[0]))))
        assert not bool(found.converged.any())
        assert found.steps.tolist() == [2, 2]
        assert [step for step, _ in seen] == [1, 2]
        assert seen[-1][1] == pytest.approx(float(found.residual[0]))
        more = solve_steady(flow, found.state)
        assert bool(more.converged.all())
        assert float(more.residual.max()) < 1e-6
        rest, first = (flow.residual(w).flatten(1).norm(dim=1) for w in (more.state, flow.uniform()))
        torch.testing.assert_close(more.residual, rest / first)

    def test_states_that_are_not_finite_stay_marked(self) -> None:
        flow = Euler(c_grid(torch.zeros(2, 8), 5, 12, 5), free_stream(0.8), wake=5)
        start = flow.uniform()
        start[1, 0, 3, 3] = math.nan
        found = solve_steady(flow, start, tolerance=1e-2, max_steps=12)
        assert found.converged.tolist() == [True, False]

    def test_a_step_reads_nothing_back(self) -> None:
        """No operation of a Newton step needs a number on the host: a CUDA graph can hold it."""
        flow = Euler(bent(1, 2, 4, 2), free_stream(0.8), wake=2)
        state = disturbed(flow)
        at = start(flow, state)
        with FakeTensorMode(allow_non_fake_inputs=True):
            euler_steady.newton_step(flow, at, torch.ones(1, dtype=torch.bool), 2)
        assert at.state.shape == state.shape

    def test_bad_arguments(self) -> None:
        flow = Euler(vortex(5)[0], free_stream(0.8))
        with pytest.raises(SolverError, match="tolerance must lie between 0 and 1"):
            solve_steady(flow, tolerance=0.0)
        with pytest.raises(SolverError, match="max_steps"):
            solve_steady(flow, max_steps=0)

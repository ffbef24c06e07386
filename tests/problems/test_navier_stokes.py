"""Navier-Stokes: the law of the initial fields, frames and groups, and the reader of the original files."""

from __future__ import annotations

import builtins
import math
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import torch
from pydantic import ValidationError

from hofno import storage
from hofno.errors import DataError, SolverError
from hofno.problems import groups, matfile, navier_stokes
from hofno.problems.navier_stokes import CARD, PUBLISHED, NavierStokesFlow
from hofno.problems.vorticity_checks import read_published, tail_share
from hofno.solvers.vorticity import VorticitySolver
from hofno.versions import versions

SMALL: dict[str, Any] = {
    "samples": 5,
    "viscosity": 1e-3,
    "resolution": 8,
    "solver_resolution": 16,
    "frames": 3,
    "step": 0.1,
}


def flow(**changes: Any) -> NavierStokesFlow:
    return NavierStokesFlow(**{**SMALL, **changes})


def amplitude(kx: np.ndarray, ky: np.ndarray) -> np.ndarray:
    return math.sqrt(2) * 7**1.5 * (4 * math.pi**2 * (kx**2 + ky**2) + 49) ** -1.25


class TestInitialFields:
    def test_spectrum(self) -> None:
        """E|w^(k)|^2 = s(k)^2 with independent real and imaginary parts, mode by mode, 3000 samples."""
        made = flow(seed=7)
        solver = made.solver()
        modes = made.initial_modes(0, 3000, solver).numpy()
        kx, ky = solver.wavenumbers.numpy().T
        scaled = modes / amplitude(kx, ky) * math.sqrt(2)
        parts = np.stack((scaled.real, scaled.imag))
        assert np.abs(parts.mean(1)).max() < 5 / math.sqrt(3000)
        assert np.abs((parts**2).mean(1) - 1).max() < 5 * math.sqrt(2 / 3000)
        assert np.abs((parts[0] * parts[1]).mean(0)).max() < 5 / math.sqrt(3000)

    def test_it_is_the_law_as_released(self) -> None:
        """Re sum_k s(k) (xi + i eta) e^{2 pi i k.x} over the whole plane, drawn as it is written, has our variance."""
        rng, n = np.random.default_rng(0), 32
        k = np.fft.fftfreq(n, 1 / n)
        s = amplitude(k[:, None], k[None, :]) * (np.abs(k[:, None]) <= 10) * (np.abs(k[None, :]) <= 10)
        s[0, 0] = 0
        draws = rng.normal(size=(2000, n, n)) + 1j * rng.normal(size=(2000, n, n))
        released = np.fft.ifft2(s * draws, norm="forward").real
        made = flow(solver_resolution=n)
        solver = made.solver()
        ours = solver.field_of(made.initial_modes(0, 2000, solver)).numpy()
        for power in (2, 4):
            assert (ours**power).mean() == pytest.approx((released**power).mean(), rel=0.05 * power / 2)
        assert np.abs(ours).mean() == pytest.approx(np.abs(released).mean(), rel=0.02)
        assert np.abs(ours.mean((-2, -1))).max() < 1e-14

    def test_size_on_the_published_grid(self) -> None:
        """The standard deviation on 256 points is 0.262, and the cutoff takes 0.16 % of it away."""
        k = np.arange(-400, 401.0)
        square = amplitude(k[:, None], k[None, :]) ** 2
        square[400, 400] = 0
        inside = np.abs(k) <= 85
        assert math.sqrt(square.sum()) == pytest.approx(0.262, abs=5e-4)
        assert math.sqrt(1 - square[np.ix_(inside, inside)].sum() / square.sum()) == pytest.approx(0.0016, abs=5e-5)

    def test_statistics_of_the_released_frames(self) -> None:
        """Spatial mean of |w| at t = 1, nu = 1e-5: 0.223, 5-95 % 0.152-0.304 in the released file of 1200 samples.

        With the amplitude of the script that is public now it would be 0.167.
        """
        made = NavierStokesFlow(samples=1200, viscosity=1e-5, resolution=32, solver_resolution=32, frames=1, step=0.1)
        size = np.abs(made.trajectories()).mean((-3, -2, -1))
        assert size.mean() == pytest.approx(0.223, abs=0.004)
        assert np.percentile(size, [5, 95]) == pytest.approx([0.152, 0.304], abs=0.01)

    def test_a_finer_grid_continues_the_same_fields(self) -> None:
        fields = []
        for n in (16, 32):
            made = flow(solver_resolution=n)
            solver = made.solver()
            modes = made.initial_modes(2, 4, solver)
            fields.append({tuple(k): z for k, z in zip(solver.wavenumbers.tolist(), modes.T.tolist(), strict=True)})
        assert all(fields[1][k] == z for k, z in fields[0].items())

    def test_seeds_and_samples_differ(self) -> None:
        solver = flow().solver()
        first = flow().initial_modes(0, 3, solver)
        assert not torch.isclose(first[0], first[1]).any()
        assert not torch.isclose(first, flow(seed=1).initial_modes(0, 3, solver)).any()
        assert torch.equal(first[1:], flow(samples=50).initial_modes(1, 3, solver))


class TestTrajectories:
    def test_frames_are_the_solution_at_one_two_three(self) -> None:
        made = flow()
        found = made.trajectories()
        assert found.shape == (5, 3, 8, 8)
        assert found.dtype == np.float32
        x = torch.arange(16, dtype=torch.float64) / 16
        angle = 2 * math.pi * (x[:, None] + x[None, :])
        solver = VorticitySolver(16, 1e-3, 0.1 * (torch.sin(angle) + torch.cos(angle)), step=0.1)
        start = solver.field_of(made.initial_modes(0, 5, solver))
        for index, time in enumerate((1.0, 2.0, 3.0)):
            expected = solver.advance(start, time)[:, ::2, ::2].numpy()
            np.testing.assert_allclose(found[:, index], expected, rtol=0, atol=2e-6)

    def test_every_parameter_changes_the_numbers(self) -> None:
        base = flow().trajectories()
        changes = ({"viscosity": 2e-3}, {"solver_resolution": 24}, {"seed": 1}, {"step": 0.2}, {"precision": "float32"})
        for change in changes:
            assert not np.array_equal(flow(**change).trajectories(), base), change
        np.testing.assert_allclose(flow(precision="float32").trajectories(), base, atol=1e-4)

    def test_more_samples_and_frames_extend(self) -> None:
        base, longer = flow().trajectories(), flow(samples=7, frames=4).trajectories()
        assert np.array_equal(longer[:5, :3], base)

    def test_a_sample_has_one_place_in_one_batch(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Whatever is asked for first, sample i is at row i % 4 of a batch of 4, so that it is rounded in one way."""
        monkeypatch.setitem(navier_stokes._GROUP, "cpu", (2**18, 4))
        solve, solver = VorticitySolver.advance_modes_, flow().solver()
        batches: list[torch.Tensor] = []

        def watch(self: VorticitySolver, modes: torch.Tensor, time: float) -> torch.Tensor:
            batches.append(modes.clone())
            return solve(self, modes, time)

        monkeypatch.setattr(VorticitySolver, "advance_modes_", watch)
        for samples in (1, 3, 6):
            flow(samples=samples, frames=1).trajectories(folder=tmp_path)
        expected = torch.zeros(4, 4, len(solver.wavenumbers), dtype=torch.complex128)  # four calls of four rows
        initial = flow().initial_modes(0, 6, solver)
        expected[0, 0], expected[1, 1:3], expected[2, 3], expected[3, :2] = (
            initial[0],
            initial[1:3],
            initial[3],
            initial[4:],
        )
        assert torch.equal(torch.stack(batches), expected)

    def test_fine_grids_mean_smaller_groups(self) -> None:
        most = {n: flow(solver_resolution=n).most_together(torch.device("cpu")) for n in (16, 128, 256, 512)}
        assert most == {16: 8, 128: 8, 256: 4, 512: 1}
        published = NavierStokesFlow.model_validate({})
        assert published.most_together(torch.device("cuda")) == 256
        assert published._group(published.simulator()) == 4
        assert flow(solver_resolution=1024)._group(flow().simulator()) == 1

    def test_memory_that_holds_no_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        needed = flow().solver().bytes_per_field()
        monkeypatch.setattr(groups, "free_bytes", lambda device: needed - 1)
        words = r"one sample at solver_resolution=16 needs .* GiB on cpu .*, lower solver_resolution or"
        with pytest.raises(SolverError, match=words):
            flow().trajectories()

    def test_parts_of_earlier_versions_are_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Their name, files and metadata stay as they were."""
        whole = flow().trajectories()
        same = {"viscosity": 1e-3, "resolution": 8, "solver_resolution": 16, "frames": 3, "step": 0.1}
        same |= {"problem": "navier_stokes", "seed": 0, "precision": "float64"}
        files = {"frames.safetensors": storage.tensor_bytes({"frames": torch.from_numpy(whole)})}
        meta = {"flow": same, "samples": [0, 5], "device": "cpu", "versions": versions()}
        storage.save_folder(tmp_path / "old" / "part-000000-000005", files, meta)
        flow().trajectories(folder=tmp_path / "new")
        for name in ("frames.safetensors", "manifest.json"):
            old, new = (tmp_path / folder / "part-000000-000005" / name for folder in ("old", "new"))
            assert new.read_bytes() == old.read_bytes()
        monkeypatch.setattr(VorticitySolver, "advance_modes_", _never)
        assert np.array_equal(flow().trajectories(folder=tmp_path / "old"), whole)

    def test_an_unstable_step_says_where(self, tmp_path: Path) -> None:
        made = NavierStokesFlow(samples=2, resolution=64, solver_resolution=64, frames=1, step=1.0)
        with pytest.raises(SolverError, match=r"frame 1 of the batch from sample 0 on: step 1 is above .*CFL number"):
            made.trajectories(folder=tmp_path)
        assert not list(tmp_path.iterdir())

    def test_a_grid_that_is_too_coarse_warns_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(navier_stokes._GROUP, "cpu", (2**18, 2))
        with pytest.warns(UserWarning, match="does not resolve this flow") as caught:
            flow(viscosity=1e-5, solver_resolution=32, samples=4, frames=20, step=0.05).trajectories()
        assert len(caught) == 1  # of two groups
        told = str(caught[0].message)
        assert re.search(r"of frame 1\d is in the last tenth of the wavenumbers, expected at most 0.002; raise", told)
        flow(solver_resolution=32).trajectories()  # warnings are errors here

    def test_the_share_of_the_last_wavenumbers(self) -> None:
        solver = flow(solver_resolution=32).solver()
        k = solver.wavenumbers.abs().amax(-1)
        modes = (1.0 / k**3).to(torch.complex128).expand(2, -1)
        energy = (modes[0].abs() ** 2).numpy()
        expected = energy[k.numpy() == 10].sum() / energy.sum()  # of 1..10
        assert tail_share(modes, (k > 9).nonzero().flatten()) == pytest.approx(expected)
        assert tail_share(0 * modes, torch.tensor([0])) == 0

    def test_bad_parameters(self) -> None:
        with pytest.raises(ValidationError, match="multiple of resolution"):
            flow(resolution=12)
        for change in ({"viscosity": 0}, {"samples": 0}, {"frames": 0}, {"precision": "half"}, {"step": 2}, {"nu": 1}):
            with pytest.raises(ValidationError):
                flow(**change)

    def test_published_sets_and_card(self) -> None:
        sizes = {
            nu: (made.samples, made.frames) for nu, made in ((nu, NavierStokesFlow(**p)) for nu, p in PUBLISHED.items())
        }
        assert sizes == {1e-3: (5000, 50), 1e-4: (10000, 30), 1e-5: (1200, 20)}
        assert all(NavierStokesFlow(**p).viscosity == nu for nu, p in PUBLISHED.items())
        assert all(word in CARD for word in ("Equation", "Cost", "Known flaws", "0.262"))


def _never(self: VorticitySolver, modes: torch.Tensor, time: float) -> torch.Tensor:
    raise AssertionError("nothing should be solved")


@pytest.fixture
def u() -> np.ndarray:
    """n = 3 samples, h = w = 5, T = 2, in the axes of the original files: (n, h, w, T); means are 0."""
    drawn = np.random.default_rng(0).normal(size=(3, 5, 5, 2))
    return drawn - drawn.mean((1, 2), keepdims=True)


def write_v73(path: Path, u: np.ndarray, **options: Any) -> Path:
    """As MATLAB writes v7.3: a user block of 512 bytes before the HDF5 part, axes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("u", data=u.T, **options)
        file.create_dataset("a", data=u[..., 0].T)
        file.create_dataset("t", data=np.arange(1.0, 3.0)[:, None])
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


class TestReader:
    @pytest.mark.parametrize("compressed", [False, True])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_v5(self, u: np.ndarray, dtype: str, compressed: bool, tmp_path: Path) -> None:
        path = tmp_path / "ns.mat"
        scipy.io.savemat(path, {"a": u[..., 0], "u": u.astype(dtype), "t": [[1.0, 2.0]]}, do_compression=compressed)
        self.check(read_published(path), u)

    @pytest.mark.parametrize("options", [{}, {"chunks": (1, 5, 3, 2), "compression": "gzip", "shuffle": True}])
    def test_v73(self, u: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
        self.check(read_published(str(write_v73(tmp_path / "ns.mat", u, **options))), u)

    @staticmethod
    def check(found: np.ndarray, u: np.ndarray) -> None:
        assert found.dtype == np.float32
        assert found.shape == (3, 2, 5, 5)
        assert found.flags.c_contiguous
        for sample, frame, i, j in np.ndindex(found.shape):
            assert found[sample, frame, i, j] == np.float32(u[sample, i, j, frame])

    @pytest.mark.parametrize("version", ["v5", "v5 compressed", "v73"])
    def test_cut_anywhere(self, version: str, u: np.ndarray, tmp_path: Path) -> None:
        path = tmp_path / "ns.mat"
        if version == "v73":
            write_v73(path, u)
        else:
            scipy.io.savemat(path, {"u": u}, do_compression=version != "v5")
        whole = path.read_bytes()
        for size in [0, 1, 100, 128, 130, 160, *range(200, len(whole) - 8, max(1, len(whole) // 25))]:
            path.write_bytes(whole[:size])
            with pytest.raises(DataError) as caught:
                read_published(path)
            assert "\n" not in str(caught.value)

    def test_foreign_files(self, u: np.ndarray, tmp_path: Path) -> None:
        for name, content in (("a", b"x" * 4000), ("b", b"PK\x03\x04" * 100), ("c", b"\x00" * 126 + b"IM" + b"?" * 99)):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError, match=r"get it again"):
                read_published(tmp_path / name)
        with pytest.raises(DataError, match="check the path"):
            read_published(tmp_path / "missing.mat")
        with pytest.raises(DataError, match="not a file"):
            read_published(tmp_path)

    def test_other_contents(self, u: np.ndarray, tmp_path: Path) -> None:
        path = tmp_path / "ns.mat"
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"v": u}, r"holds \['v'\], expected a variable 'u'"),
            ({"u": u[0]}, "expected 'u' with 4 axes"),
            ({"u": u.astype(np.int32)}, "single or double"),
            ({"u": {"field": 1.0}}, "single or double"),
            ({"u": u + 1j}, "real numbers"),
            ({"u": np.where(u > 1, np.nan, u)}, "not finite"),
        ]
        for content, message in wrong:
            scipy.io.savemat(path, content)
            with pytest.raises(DataError, match=message):
                read_published(path)

    @pytest.mark.parametrize("viscosity", [1e-3, 1e-5])
    @pytest.mark.filterwarnings("ignore:the solver's grid does not resolve")
    def test_axes_in_another_order(self, viscosity: float, tmp_path: Path) -> None:
        """Samples, x, y and frames of one flow: as released, and in every order that can be told from it."""
        given = {"viscosity": viscosity, "resolution": 16, "solver_resolution": 32, "samples": 9, "step": 0.05}
        frames = flow(**given, frames=16).trajectories()  # (n, T, h, w)
        axes = dict(zip("nthw", range(4), strict=True))
        path = tmp_path / "ns.mat"

        def written(order: str) -> Path:
            scipy.io.savemat(path, {"u": frames.transpose([axes[name] for name in order])})
            return path

        assert np.array_equal(read_published(written("nhwt")), frames)
        for order, words in (
            ("hwnt", r"got shape \(16, 16, 9, 16\), where x and y differ"),
            ("tnhw", "where x and y differ"),
            ("nthw", "where means over x and y are up to"),
            ("nhtw", "where means over x and y are up to"),
            ("twhn", r"as with axes \(frames, y, x, samples\)"),
            ("thwn", "samples follow each other in time"),
        ):
            with pytest.raises(DataError, match=words) as caught:
                read_published(written(order))
            assert "expected 'u' with axes (samples, x, y, frames)" in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_one_sample_one_frame_and_fields_of_zeros_are_read(self, tmp_path: Path) -> None:
        for shape in ((1, 4, 4, 3), (3, 4, 4, 1), (2, 4, 4, 2)):
            scipy.io.savemat(tmp_path / "ns.mat", {"u": np.zeros(shape)})
            assert read_published(tmp_path / "ns.mat").size == np.prod(shape)

    def test_hdf5_that_points_elsewhere(self, u: np.ndarray, tmp_path: Path) -> None:
        other = write_v73(tmp_path / "other.mat", u)
        raw = tmp_path / "raw.bin"
        raw.write_bytes(u.T.tobytes())
        path = tmp_path / "ns.mat"

        def refused(message: str) -> None:
            with pytest.raises(DataError, match=message):
                read_published(path)

        for link in (h5py.ExternalLink(str(other), "u"), h5py.SoftLink("/a")):
            with h5py.File(path, "w") as file:
                file["a"] = u.T
                file["u"] = link
            refused("link")
        with h5py.File(path, "w") as file:
            file.create_dataset("u", u.T.shape, "f8", external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
        refused("other files")
        layout = h5py.VirtualLayout(u.T.shape, "f8")
        layout[:] = h5py.VirtualSource(str(other), "u", u.T.shape)
        with h5py.File(path, "w") as file:
            file.create_virtual_dataset("u", layout)
        refused("other files")
        with h5py.File(path, "w") as file:
            file.create_group("u")
        refused("array of real numbers")
        with h5py.File(path, "w") as file:
            file["other"] = u.T
        refused("expected a variable 'u'")
        with h5py.File(path, "w") as file:
            file.create_dataset("u", u.T.shape, "f8", chunks=(1, 5, 5, 3))[0] = 1.0
        refused("not stored in full")
        with h5py.File(path, "w") as file:
            file.create_dataset("u", (50, 64, 64, 10**9), "f8")
        refused("not stored in full")
        write_v73(path, u, compression="lzf")
        refused("filters")

    def test_claims_beyond_the_memory(self, u: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(matfile, "free_bytes", lambda device: 100)
        scipy.io.savemat(tmp_path / "v5.mat", {"u": u})
        for path in (tmp_path / "v5.mat", write_v73(tmp_path / "v73.mat", u)):
            with pytest.raises(DataError, match=r"needs .* of memory"):
                read_published(path)

    def test_missing_packages(self, u: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scipy.io.savemat(tmp_path / "v5.mat", {"u": u})
        write_v73(tmp_path / "v73.mat", u)
        real = builtins.__import__

        def without(name: str, *args: Any, **kwargs: Any) -> Any:
            if name.split(".")[0] in ("scipy", "h5py"):
                raise ImportError(name)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", without)
        for file, package in (("v5.mat", "scipy"), ("v73.mat", "h5py")):
            with pytest.raises(DataError, match=rf"needs {package}; install it with: pip install 'hofno\[files\]'"):
                read_published(tmp_path / file)

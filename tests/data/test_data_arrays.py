"""Arrays of the user's own, NumPy files, and normalisers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hofno import from_arrays
from hofno.data.normalise import ChannelNormaliser
from hofno.data.npy import npy_bytes, read_npy
from hofno.data.rounding import CONSTANT
from hofno.data.values import as_float32
from hofno.errors import CheckpointError, DataError, HofnoError


def pair(n: int = 10, grid: tuple[int, ...] = (6, 5)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2, *grid)), rng.standard_normal((n, 1, *grid))


class TestFromArrays:
    def test_splits_are_a_partition_of_the_samples(self) -> None:
        x, y = pair(20)
        data = from_arrays(x, y)
        assert [len(split) for split in (data.train, data.valid, data.test)] == [16, 2, 2]
        together = torch.cat((data.train.x, data.valid.x, data.test.x))
        found = sorted(map(tuple, together.flatten(1).tolist()))
        assert found == sorted(map(tuple, x.astype(np.float32).reshape(20, -1).tolist()))
        for split in (data.train, data.valid, data.test):
            for a, b in zip(split.x, split.y, strict=True):
                index = int(np.argmax((x.astype(np.float32) == a.numpy()).all((1, 2, 3))))
                np.testing.assert_array_equal(y[index].astype(np.float32), b.numpy())
        assert (data.in_channels, data.out_channels, data.grid.shape, data.origin) == (2, 1, (6, 5), "user")

    def test_seed(self) -> None:
        x, y = pair()
        assert torch.equal(from_arrays(x, y, seed=3).train.x, from_arrays(x, y, seed=3).train.x)
        assert not torch.equal(from_arrays(x, y, seed=3).train.x, from_arrays(x, y, seed=4).train.x)
        in_order = from_arrays(x, y, seed=None, split=(5, 3, 2))
        np.testing.assert_array_equal(in_order.train.x, x[:5].astype(np.float32))
        np.testing.assert_array_equal(in_order.test.y, y[8:].astype(np.float32))

    def test_split_by_numbers_may_leave_samples_out(self) -> None:
        data = from_arrays(*pair(), split=(4, 2, 1))
        assert [len(split) for split in (data.train, data.valid, data.test)] == [4, 2, 1]

    def test_periodic(self) -> None:
        assert from_arrays(*pair(), periodic=True).grid.periodic
        assert not from_arrays(*pair()).grid.periodic

    def test_coords_become_channels(self) -> None:
        x, y = pair()
        shared = np.random.default_rng(1).random((2, 6, 5))
        data = from_arrays(x, y, shared, seed=None)
        assert data.in_channels == 4
        np.testing.assert_array_equal(data.test.x[0, 2:], shared.astype(np.float32))
        own = np.random.default_rng(1).random((10, 2, 6, 5))
        data = from_arrays(x, y, own, seed=None)
        np.testing.assert_array_equal(data.test.x[0, 2:], own[9].astype(np.float32))

    @pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32, np.uint8, bool, ">f4", np.longdouble])
    def test_kinds_of_numbers(self, kind: object) -> None:
        x, y = pair()
        data = from_arrays((x > 0).astype(kind), y)
        assert data.train.x.dtype == torch.float32
        assert set(data.train.x.unique().tolist()) == {0.0, 1.0}

    def test_a_masked_array_without_a_mask_is_one_like_others(self) -> None:
        x, y = pair()
        assert from_arrays(np.ma.masked_array(x), y).train.x.equal(from_arrays(x, y).train.x)

    def test_other_containers(self) -> None:
        x, y = pair(grid=(4,))
        frozen = x.astype(np.float32)
        frozen.flags.writeable = False
        expected = from_arrays(x, y).train.x
        for other in (
            torch.from_numpy(x),
            x.tolist(),
            np.asfortranarray(x),
            frozen,
            torch.from_numpy(x).requires_grad_(),
        ):
            assert torch.equal(from_arrays(other, y).train.x, expected)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda x, y: (x, y[:-1]), "x has 10 samples and y has 9"),
            (lambda x, y: (x, y[:, 0]), r"a single channel needs its axis: give y\[:, None\]$"),
            (lambda x, y: (y[:, 0], x), r"a single channel needs its axis: give x\[:, None\]$"),
            (lambda x, y: (y[:, 0, 0], y[:, 0, 0]), r"give x\[:, None\] and y\[:, None\]$"),
            (
                lambda x, y: (np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1)),
                r"second axis: give numpy\.moveaxis\(x, -1, 1\) and numpy\.moveaxis\(y, -1, 1\)$",
            ),
            (lambda x, y: (np.moveaxis(x, 1, -1), y), r"second axis: give numpy\.moveaxis\(x, -1, 1\)$"),
            (lambda x, y: (np.moveaxis(x, 1, -1), y[:, 0]), r"moveaxis\(x, -1, 1\) and y\[:, None\]$"),
            (lambda x, y: (x, y[..., :-1]), "on one grid.*; give both at the same points"),
            (lambda x, y: (x[0, 0], y[0, 0]), "on one grid"),
            (lambda x, y: (3.0, 4.0), "on one grid"),
            (lambda x, y: (x[..., None, None], y[..., None, None]), "one to three grid axes"),
            (lambda x, y: (np.where(x == x[4, 0, 0, 0], np.nan, x), y), "x holds 1 values .* first in sample 4"),
            (lambda x, y: (x, np.where(y == y[2, 0, 0, 0], np.inf, y)), "y holds 1 values .* first in sample 2"),
            (lambda x, y: (y[..., 0], y[..., 0, :]), "on one grid.*; give both at the same points$"),
            (
                lambda x, y: (x, y[..., 0, 0]),
                r"make them constant fields .*broadcast_to\(y\[:, :, None, None\], \(10, 1, 6, 5\)\); else give both",
            ),
            (lambda x, y: (x[..., 0], y[:, 0, 0, 0]), r"broadcast_to\(y\[:, None, None\], \(10, 1, 6\)\)"),
            (lambda x, y: (x[..., 0, 0], y), r"broadcast_to\(x\[:, :, None, None\], \(10, 2, 6, 5\)\)"),
            (lambda x, y: (np.abs(x) * 1e300, y), r"x holds 600 numbers too large for float32.*e\+300; rescale"),
            (lambda x, y: (x, torch.from_numpy(y) * 1e300), r"y holds \d+ numbers too large for float32"),
            (lambda x, y: (np.where(x > 0, np.inf, x), y), "NaN or infinite"),
            (lambda x, y: (x.astype(complex), y), "got dtype complex128; split it into real and imaginary channels"),
            (lambda x, y: (torch.from_numpy(x).to(torch.complex64), y), "complex64; .*real and imaginary channels"),
            (lambda x, y: (x.astype(str), y), "real numbers; got dtype <U"),
            (lambda x, y: (x, {"y": y}), "y must hold real numbers; got dict of dtype object"),
            (lambda x, y: (x, "targets.npy"), r"y is an array or a tensor; got 'targets\.npy'; .*numpy\.load"),
            (lambda x, y: (Path("inputs.npy"), y), r"x is an array .*inputs\.npy.*numpy\.load"),
            (lambda x, y: (x, None), "y is an array or a tensor; got None; give its values"),
            (lambda x, y: ([[1, 2], [3]], y), "rows of different lengths"),
            (lambda x, y: (np.ma.masked_less(x, np.median(x)), y), r"leaves 300 of 600 .*such as x\.filled\(0\)"),
            (
                lambda x, y: ([*x[:3], *np.ma.masked_less(x[3:], 9)], y),
                r"^x\[3\] is a masked .*such as x\[3\]\.filled\(0\)",
            ),
        ],
    )
    def test_arrays_that_do_not_fit(self, change: object, text: str) -> None:
        with pytest.raises(DataError, match=text):
            from_arrays(*change(*pair()))  # pyright: ignore[reportCallIssue]

    @pytest.mark.parametrize(
        ("split", "text"),
        [
            ((0.5, 0.5), "three parts"),
            ((0.5, 0.6, -0.1), "none negative"),
            ((0.5, 0.5, 0.5), "sum to 1"),
            ((8, 2, 1), "no more than 10"),
            ((9, 1, 0), "at least one sample"),
            ((0.98, 0.01, 0.01), "at least one sample"),
        ],
    )
    def test_impossible_splits(self, split: tuple[float, ...], text: str) -> None:
        with pytest.raises(DataError, match=text):
            from_arrays(*pair(), split=split)

    @pytest.mark.parametrize(
        ("samples", "remedy"), [(4, r"say how many: split=\(2, 1, 1\)"), (2, "at least 3 samples")]
    )
    def test_too_few_samples_for_fractions(self, samples: int, remedy: str) -> None:
        with pytest.raises(DataError, match=remedy):
            from_arrays(*pair(samples))

    def test_coords_that_do_not_fit(self) -> None:
        with pytest.raises(DataError, match="coords must be"):
            from_arrays(*pair(), np.ones((2, 5, 6)))
        with pytest.raises(DataError, match="x holds"):
            from_arrays(*pair(), np.full((2, 6, 5), np.nan))


FIELDS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=3, max_dims=4, min_side=1, max_side=5),
    elements=st.floats(-1e3, 1e3, width=32),
)


class TestNormaliser:
    @given(FIELDS)
    def test_statistics(self, u: np.ndarray) -> None:
        found = ChannelNormaliser.fit(torch.from_numpy(u))
        channels = np.moveaxis(u.astype(np.float64), 1, 0).reshape(u.shape[1], -1)
        np.testing.assert_allclose(found.mean, channels.mean(1), rtol=1e-6, atol=1e-4)
        if channels.shape[1] > 1:
            std = channels.std(1, ddof=1)
            part = channels.std(1) / np.maximum(np.abs(channels.mean(1)), 1e-300)
            varies, clear = part > 1.01 * CONSTANT, (np.abs(part / CONSTANT - 1) > 0.01) & ((std == 0) | (std > 1e-37))
            if varies.any() and clear.all() and std.max() > 1e-4:
                np.testing.assert_allclose(found.std, np.where(varies, std, 1.0), rtol=1e-5)

    @given(FIELDS)
    def test_round_trip(self, u: np.ndarray) -> None:
        field = torch.from_numpy(u)
        found = ChannelNormaliser.fit(field)
        torch.testing.assert_close(found.decode(found.encode(field)), field, rtol=1e-4, atol=1e-2)

    def test_encoded_fields_are_standard(self) -> None:
        u = torch.randn(200, 3, 8, 8) * torch.tensor([1e-6, 1.0, 1e6]).view(3, 1, 1) + 5
        encoded = ChannelNormaliser.fit(u).encode(u).double()
        torch.testing.assert_close(encoded.mean((0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=0.05)
        torch.testing.assert_close(encoded.std((0, 2, 3))[1:], torch.ones(2).double(), rtol=1e-3, atol=0)

    def test_a_large_mean_does_not_drown_the_deviation(self) -> None:
        u = torch.randn(300, 1, 16, 16, generator=torch.Generator().manual_seed(1)) + 1000
        assert float(ChannelNormaliser.fit(u).std) == pytest.approx(float(u.double().std()), rel=1e-6)

    @given(st.integers(-100, 100), st.booleans())
    def test_units_do_not_matter(self, power: int, constant: bool) -> None:
        """Fields in other units, here a power of two, are the same fields once standardised, bit for bit."""
        u = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(1)) + torch.tensor([[0.5], [3.0]])
        if constant:
            u[:, 1] = 0.0
        found, expected = (ChannelNormaliser.fit(v).encode(v) for v in (u * 2.0**power, u))
        assert torch.equal(found, expected)
        tiny = ChannelNormaliser.fit(u * 2.0**power)
        assert not constant or 1e-6 < float(tiny.std[1] / tiny.std[0]) < 1e6, "an error there does not drown the others"

    @pytest.mark.parametrize("scale", [1e-20, 1e-9, 1.0, 1e9])
    def test_rounding_of_a_constant_is_no_variation(self, scale: float) -> None:
        u = torch.full((4, 1, 3), 0.1)
        u[0, 0, 0] += 7e-9
        assert float(ChannelNormaliser.fit(u * scale).encode(u * scale).abs().max()) < 1e-6

    @pytest.mark.parametrize("deviation", [1.0, 0.05, 0.01])
    def test_a_small_deviation_about_a_large_mean_is_one(self, deviation: float) -> None:
        """The smallest is a step between float32 numbers of that size; a loss in units of the mean would not see it."""
        u = torch.from_numpy(101325.0 + deviation * np.random.default_rng(0).standard_normal((200, 1, 32))).float()
        assert float(ChannelNormaliser.fit(u).std) == pytest.approx(float(u.double().std()), rel=1e-6)
        pair = torch.cat((u, torch.full_like(u, 101325.0)), 1)
        assert float(ChannelNormaliser.fit(pair).std[1]) == 1.0

    @pytest.mark.parametrize("samples", [2, 3, 100])
    def test_neighbouring_numbers_are_one_constant(self, samples: int) -> None:
        u = torch.full((samples, 1, 2), 1.0)
        u[::2] = 1.0 + torch.finfo(torch.float32).eps
        assert float(ChannelNormaliser.fit(u).std) == 1.0

    def test_a_constant_channel_is_left_alone(self) -> None:
        u = torch.full((4, 1, 3), 7.0)
        found = ChannelNormaliser.fit(u)
        assert float(found.std) == 1.0
        assert torch.equal(found.encode(u), torch.zeros(4, 1, 3))

    def test_saved_and_read(self) -> None:
        found = ChannelNormaliser.fit(torch.randn(5, 2, 4))
        again = ChannelNormaliser.from_tensors(found.tensors("inputs"), "inputs")
        assert torch.equal(again.mean, found.mean)
        assert torch.equal(again.std, found.std)
        with pytest.raises(CheckpointError, match=r"lack 'targets\.mean'"):
            ChannelNormaliser.from_tensors(found.tensors("inputs"), "targets")

    def test_identity(self) -> None:
        u = torch.randn(2, 3, 4)
        assert torch.equal(ChannelNormaliser.identity(3).encode(u), u)


class TestNpy:
    @given(
        hnp.arrays(
            st.sampled_from([np.float32, np.float64, np.int16, ">f4", bool]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0),
            elements=st.integers(0, 1),
        )
    )
    def test_round_trip(self, array: np.ndarray) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.npy"
            path.write_bytes(npy_bytes(array))
            found = read_npy(path)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
        assert found.flags.writeable

    def test_fortran_order(self, tmp_path: Path) -> None:
        array = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
        np.save(tmp_path / "a.npy", array)
        np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), array)

    @given(st.binary(max_size=300), st.integers(0, 160))
    def test_any_bytes_are_read_or_refused(self, noise: bytes, position: int) -> None:
        """A damaged file never gives anything but an array or one of our errors."""
        import tempfile

        honest = npy_bytes(np.ones((2, 3), np.float32))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.npy"
            for content in (noise, honest[:position] + noise, honest[:position] + noise + honest[position:]):
                path.write_bytes(content)
                message = ""
                try:
                    found = read_npy(path)
                except HofnoError as error:
                    message = str(error)
                else:
                    assert found.nbytes <= len(content)
                assert "\n" not in message


def test_as_float32_names_the_argument() -> None:
    with pytest.raises(DataError, match=r"^coords must hold real numbers"):
        as_float32(np.array(["a"]), "coords")

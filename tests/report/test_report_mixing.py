"""Mode mixing as it is measured is what the mathematics says, and the figure shows what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hofno.report.mixing import KEPT, SIGNAL, Mixing, measure
from hofno.report.mixing_figure import KINDS, mode_mixing


@pytest.fixture(scope="module")
def mixing() -> Mixing:
    return measure()


@pytest.fixture(scope="module")
def figure(mixing: Mixing) -> Figure:
    return mode_mixing(mixing)


def test_order_1_gives_each_kept_mode_to_itself(mixing: Mixing) -> None:
    kept = [abs(k) < KEPT for k in mixing.modes]
    np.testing.assert_allclose(mixing.single, np.diag(kept), atol=1e-12)
    np.testing.assert_allclose(mixing.linear, mixing.signal * kept, atol=1e-12)


def test_order_2_gives_each_pair_to_its_sum(mixing: Mixing) -> None:
    for k in mixing.modes:
        expected = [[float(j + m == k and abs(k) < KEPT) for m in mixing.modes] for j in mixing.modes]
        np.testing.assert_allclose(mixing.pairs[k + mixing.top], expected, atol=1e-12)


def test_order_2_of_the_signal_is_the_convolution_of_its_spectrum(mixing: Mixing) -> None:
    whole = np.convolve(mixing.signal, mixing.signal)  # modes -6 to 6
    kept = [abs(k) < KEPT for k in mixing.modes]
    np.testing.assert_allclose(mixing.quadratic, whole[mixing.top : -mixing.top] * kept, atol=1e-12)


def test_pairs_together_are_the_whole(mixing: Mixing) -> None:
    """The layer on the signal is the sum over pairs of modes, also of those above the cut."""
    assert set(mixing.contributions) == set(range(KEPT))
    for k, terms in mixing.contributions.items():
        assert sum(terms.values()) == pytest.approx(mixing.quadratic[k + mixing.top])
    assert list(mixing.contributions[0]) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert list(mixing.contributions[1]) == [(0, 1), (1, 2), (2, 3)]
    assert mixing.contributions[1][2, 3] == pytest.approx(2 * SIGNAL[2] * SIGNAL[3])


def test_bars_are_the_coefficients(figure: Figure, mixing: Mixing) -> None:
    linear, quadratic = (axis for axis in figure.axes if axis.get_ylabel() == "coefficient")
    for axis, after in ((linear, mixing.linear), (quadratic, mixing.quadratic)):
        before, *parts = axis.containers
        assert [bar.get_height() for bar in before] == pytest.approx(SIGNAL)
        tops = {round(bar.get_x() + bar.get_width() / 2): bar.get_y() + bar.get_height() for (bar,) in parts}
        assert tops == pytest.approx({k: after[k + mixing.top] for k in range(KEPT)})
    assert [to_hex(bar.get_facecolor()) for (bar,) in quadratic.containers[5:]] == [KINDS[0], KINDS[1], KINDS[2]]


def test_squares_name_the_mode_that_is_reached(figure: Figure, mixing: Mixing) -> None:
    single, pairs = (axis for axis in figure.axes if axis.get_title().startswith("Which mode "))
    for axis, count in ((single, 3), (pairs, 19)):
        named = [text for text in axis.texts if text.get_text()]
        assert len(named) == count
        for text in named:
            j, m = text.get_position()
            assert int(text.get_text().replace("−", "-")) == (m if axis is single else j + m)


def test_arrows_go_from_pairs_to_modes(figure: Figure) -> None:
    (graph,) = (axis for axis in figure.axes if axis.get_title() == "Which pairs reach which mode")
    texts = [text.get_text() for text in graph.texts]
    assert [text for text in texts if " " in text] == [
        *("0 + 0", "1 − 1", "2 − 2", "3 − 3"),
        *("0 + 1", "2 − 1", "3 − 2"),
    ]
    assert "mode 0 from 0 + 0, 1 − 1, 2 − 2, 3 − 3; mode 1 from 0 + 1, 2 − 1, 3 − 2" in str(figure.get_label())

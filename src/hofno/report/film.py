"""A film on a page without scripts: every panel is a strip of its frames, which a style sheet moves step by step.

    panel = | frame 0 | frame 1 | ... | frame T-1 |     shown through a window one frame wide

Truth and predictions share the colour limits of the truth, at all times. The errors of all models share limits of their
own, symmetric about zero and written below, so that models are compared by eye. The film can be paused, stands still
for readers who ask for less motion until they start it, and is a still picture of its last frame in print.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.errors import ShapeError
from hofno.report.digits import number
from hofno.report.drawing import in_any_script
from hofno.report.planes import error_reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECONDS_PER_FRAME = 0.4
WIDE = 1.5
"""Width by height from which on panels are laid in rows that fill the page."""

FIELD_COLOURS, ERROR_COLOURS = "viridis", "RdBu_r"
SHADES = 17


@dataclass(frozen=True, slots=True)
class Scale:
    """What colours mean: the name of a quantity with its unit, a colour map and the values at its ends."""

    name: str
    colours: str
    low: float
    high: float

    @property
    def words(self) -> str:
        return f"{self.name} from {number(self.low)} to {number(self.high)}"


@dataclass(frozen=True, slots=True)
class Strip:
    """One panel: its title, a PNG of all frames side by side, and what its colours mean."""

    title: str
    picture: bytes
    scale: Scale


@dataclass(frozen=True, slots=True)
class Film:
    """Panels that move together, the truth first, then prediction and error of each model; with a label for each frame.

    `aspect` is width by height.
    """

    strips: tuple[Strip, ...]
    labels: tuple[str, ...]
    aspect: float = 1.0

    @property
    def fields(self) -> Scale:
        """What the colours of truth and predictions mean."""
        return self.strips[0].scale

    @property
    def errors(self) -> Scale | None:
        """What the colours of errors mean, of all models; None where there is none."""
        return self.strips[2].scale if len(self.strips) > 2 else None

    @property
    def limits(self) -> str:
        """What the colours mean, in words."""
        told = f"Colours: {self.fields.words} in truth and predictions."
        if self.errors is None:
            return told
        every = " of all models" if len(self.strips) > 3 else ""
        ends = f"from {number(self.errors.low)} to {number(self.errors.high)}"
        return f"{told} Errors{every} {ends}. What lies beyond has the last colour."


def make_film(truth: Any, predictions: Mapping[str, Any], labels: Sequence[str], name: str = "fields") -> Film:
    """The film of one sample: truth (t, h, w), predictions of the same shape by model, and a label for each frame.

    `name` is what the fields are, with their unit.
    """
    true = np.asarray(truth, dtype=float)
    if true.ndim != 3 or len(labels) != len(true) or len(true) < 2:
        raise ShapeError(
            f"expected two or more frames (t, h, w) with a label each; got shape {true.shape} and {len(labels)} labels"
        )
    guesses = {label: np.asarray(values, dtype=float) for label, values in predictions.items()}
    for label, guess in guesses.items():
        if guess.shape != true.shape:
            raise ShapeError(f"expected a prediction of shape {true.shape}, got {guess.shape} from {label!r}")
    low, high = float(true.min()), float(true.max())
    high = high if high > low else low + 1.0
    fields = Scale(name, FIELD_COLOURS, low, high)
    strips = [Strip("Truth", _strip(true, fields), fields)]
    reach = error_reach([guess - true for guess in guesses.values()], high - low)
    errors = Scale("prediction − truth", ERROR_COLOURS, -reach, reach)
    for label, guess in guesses.items():
        strips.append(Strip(label, _strip(guess, fields), fields))
        strips.append(Strip(f"Error of {label}", _strip(guess - true, errors), errors))
    return Film(tuple(strips), tuple(labels), aspect=true.shape[1] / true.shape[2])


def film_html(film: Film, place: int, caption: str) -> str:
    """The film as a figure; `place` tells films on one page apart, `caption` is HTML."""
    count = len(film.labels)
    timing = f"--frames: {count}; --length: {count * SECONDS_PER_FRAME:g}s; --shape: {film.aspect:.4g}"
    kind = "film wide" if film.aspect > WIDE else "film"
    truth, *others = film.strips
    columns = [[truth], *(others[at : at + 2] for at in range(0, len(others), 2))]
    scaled = {id(truth), *map(id, others[1::2])}  # a prediction has the colours of the truth
    parts = ["".join(_panel(strip, count, id(strip) in scaled) for strip in column) for column in columns]
    panels = "".join(f"<div>\n{part}</div>\n" for part in parts)
    clock = "".join(f"<span>{html.escape(label)}</span>" for label in film.labels)
    return (
        f'<figure>\n<div class="{kind}" style="{timing}">\n'
        f'<input type="checkbox" id="film-{place}"><label for="film-{place}"><span class="moving">pause</span>'
        '<span class="still">play</span></label>\n'
        f'<div class="clock" aria-hidden="true"><div>{clock}</div></div>\n'
        f'<div class="panels">\n{panels}</div>\n</div>\n<figcaption>{caption}</figcaption>\n</figure>\n'
    )


def _panel(strip: Strip, count: int, scaled: bool) -> str:
    """The moving picture above its title; `scaled`: with its bar of colours."""
    title, data = html.escape(strip.title), base64.b64encode(strip.picture).decode("ascii")
    bar = _scale(strip.scale) if scaled else ""
    return (
        f'<div><div class="strip" role="img" aria-label="{title}, {count} frames" '
        f"style=\"background-image: url('data:image/png;base64,{data}')\"></div><span>{title}</span>{bar}</div>\n"
    )


def _scale(scale: Scale) -> str:
    """A bar of colours between the values at its ends; the caption says the same in words."""
    import matplotlib
    from matplotlib.colors import to_hex

    shades = ", ".join(to_hex(matplotlib.colormaps[scale.colours](place)) for place in np.linspace(0, 1, SHADES))
    low, high = number(scale.low), number(scale.high)
    return (
        f'<div class="scale" aria-hidden="true"><b>{html.escape(scale.name)}</b><small>{low}</small>'
        f'<i style="background: linear-gradient(to right, {shades})"></i><small>{high}</small></div>'
    )


def png(figure: Figure) -> bytes:
    """A figure as it is, in the 256 colours that serve it best: a fifth of the bytes."""
    from PIL import Image

    buffer = io.BytesIO()
    with in_any_script():
        figure.savefig(buffer, format="rgba", facecolor="white")
    width, height = (round(inches * figure.dpi) for inches in figure.get_size_inches())
    picture = Image.frombytes("RGBA", (width, height), buffer.getvalue()).convert("RGB")
    buffer = io.BytesIO()
    picture.quantize(256).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _strip(frames: np.ndarray, scale: Scale) -> bytes:
    """Frames (t, h, w) as one picture, side by side, x to the right and y upwards; what is not finite is grey."""
    import matplotlib
    from matplotlib.image import imsave

    scaled = np.clip((frames - scale.low) / (scale.high - scale.low), 0.0, 1.0)
    wide = np.concatenate([frame.T[::-1] for frame in scaled], axis=1)  # (w, t h)
    shown = matplotlib.colormaps[scale.colours].with_extremes(bad="#9aa5b1")(np.ma.masked_invalid(wide), bytes=True)
    buffer = io.BytesIO()
    imsave(buffer, shown[..., :3].copy(), format="png", metadata={"Software": ""})
    return buffer.getvalue()

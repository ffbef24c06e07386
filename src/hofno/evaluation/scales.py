"""Errors by scale over a split: relative L2 by band of wavenumbers, and mean spectra of truth, prediction and error.

Fields on a grid or a mesh are taken as they are stored, by their indices: where they are not periodic, what lies
between their two ends counts as a jump.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hofno.evaluation.metrics import known
from hofno.evaluation.spectrum import FAINT, Power, band_errors, band_powers

Spectra = dict[str, dict[str, Tensor]]
"""By kind, means over samples by shell of "truth", "prediction" and "error", (shells,) each."""


class ByScale:
    """Sums over the batches of a split; `kinds` names spectra, the first of which gives the bands."""

    def __init__(self, kinds: dict[str, Power]) -> None:
        self.kinds = kinds
        self._bands: list[dict[str, Tensor]] = []
        self._held: dict[str, float] = {}  # power of the truth in each band
        self._sums: Spectra = {}
        self._samples = 0

    def add_bands(self, prediction: Tensor, target: Tensor) -> None:
        """Of a batch, (n, c, *grid): the error of a band is over all channels of a sample."""
        power_of = next(iter(self.kinds.values()))
        self._bands.append({name: known(e) for name, e in band_errors(prediction, target, power_of).items()})
        for name, value in band_powers(target, power_of).items():
            self._held[name] = self._held.get(name, 0.0) + value

    def add_spectra(self, prediction: Tensor, target: Tensor) -> None:
        """Of a batch, (n, c, *grid), summed over channels."""
        self._samples += len(target)
        parts = {"truth": target, "prediction": prediction, "error": prediction.double() - target.double()}
        for kind, spectrum in self.kinds.items():
            sums = self._sums.setdefault(kind, {})
            for name, fields in parts.items():
                value = spectrum(fields).sum((0, 1))
                sums[name] = sums[name] + value if name in sums else value

    def bands(self) -> dict[str, Tensor]:
        """Relative L2 error of each sample by band, (n,) each; bands in which the truth has nothing are left out."""
        seen = [name for name, value in self._held.items() if value > FAINT * sum(self._held.values())]
        return {name: torch.cat([part[name] for part in self._bands]) for name in seen}

    def spectra(self) -> Spectra:
        """Means over the samples."""
        return {kind: {k: v / self._samples for k, v in parts.items()} for kind, parts in self._sums.items()}


def band_metrics(bands: dict[str, Tensor]) -> dict[str, float]:
    """Mean errors by band, as they stand beside `rel_l2`."""
    return {f"rel_l2_{name}": float(values.mean()) for name, values in bands.items()}


def plain(values: Tensor) -> list[float | None]:
    """Numbers for a JSON file; what is not finite becomes None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def plain_spectra(spectra: Spectra) -> dict[str, dict[str, list[float | None]]]:
    return {kind: {k: plain(v) for k, v in parts.items()} for kind, parts in spectra.items()}

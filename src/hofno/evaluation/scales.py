"""Errors by scale over a split: relative L2 by band of wavenumbers, and mean spectra of truth, prediction and error.

Fields on a grid or a mesh are taken as they are stored, by their indices: where they are not periodic, what lies
between their two ends counts as a jump.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hofno.evaluation.metrics import known
from hofno.evaluation.spectrum import BANDS, FAINT, Power, errors_by_band, powers_by_band

Spectra = dict[str, dict[str, Tensor]]
"""By kind, power by shell of "truth", "prediction" and "error"; as a result means over samples, (shells,) each."""


class ByScale:
    """Sums over the batches of a split; `kinds` names spectra, the first of which gives the bands."""

    def __init__(self, kinds: dict[str, Power]) -> None:
        self.kinds = kinds
        self._bands: list[dict[str, Tensor]] = []
        self._held: dict[str, float] = {}  # power of the truth in each band
        self._sums: Spectra = {}
        self._samples = 0

    def add(self, prediction: Tensor, target: Tensor) -> None:
        """A batch, (n, c, *grid), to both."""
        found = self._powers(prediction, target)
        self._add_bands(found)
        self._add_spectra(found)

    def add_bands(self, prediction: Tensor, target: Tensor) -> None:
        """A batch, (n, c, *grid), to the errors by band, which are over all channels of a sample."""
        kind, power_of = next(iter(self.kinds.items()))
        parts = {"truth": target, "error": prediction.double() - target.double()}
        self._add_bands({kind: {name: power_of(fields).sum(1) for name, fields in parts.items()}})

    def add_spectra(self, prediction: Tensor, target: Tensor) -> None:
        """A batch, (n, c, *grid), to the spectra, which are sums over channels."""
        self._add_spectra(self._powers(prediction, target))

    def _powers(self, prediction: Tensor, target: Tensor) -> Spectra:
        """By kind, of each sample of a batch, (n, shells)."""
        parts = {"truth": target, "prediction": prediction, "error": prediction.double() - target.double()}
        return {
            kind: {name: spectrum(fields).sum(1) for name, fields in parts.items()}
            for kind, spectrum in self.kinds.items()
        }

    def _add_bands(self, powers: Spectra) -> None:
        first = next(iter(powers.values()))
        found, right = errors_by_band(first["error"], first["truth"]), first["truth"]
        some = {name: right[:, low:high].sum(1) > FAINT * right.sum(1) for name, (low, high) in BANDS.items()}
        self._bands.append({name: torch.where(some[name], known(error), math.nan) for name, error in found.items()})
        for name, value in powers_by_band(first["truth"]).items():
            self._held[name] = self._held.get(name, 0.0) + value

    def _add_spectra(self, powers: Spectra) -> None:
        self._samples += len(next(iter(powers.values()))["truth"])
        for kind, parts in powers.items():
            sums = self._sums.setdefault(kind, {})
            for name, values in parts.items():
                sums[name] = sums[name] + values.sum(0) if name in sums else values.sum(0)

    def bands(self) -> dict[str, Tensor]:
        """Relative L2 error of each sample by band, (n,) each; NaN where the truth of a sample has nothing in it.

        Bands in which that of no sample has anything are left out.
        """
        seen = [name for name, value in self._held.items() if value > FAINT * sum(self._held.values())]
        return {name: torch.cat([part[name] for part in self._bands]) for name in seen}

    def spectra(self) -> Spectra:
        """Means over the samples."""
        return {kind: {k: v / self._samples for k, v in parts.items()} for kind, parts in self._sums.items()}


def band_metrics(bands: dict[str, Tensor]) -> dict[str, float]:
    """Mean errors by band, over the samples that have something in it, as they stand beside `rel_l2`."""
    return {f"rel_l2_{name}": float(values.nanmean()) for name, values in bands.items()}


def plain(values: Tensor) -> list[float | None]:
    """Numbers for a JSON file; what is not finite becomes None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def plain_spectra(spectra: Spectra) -> dict[str, dict[str, list[float | None]]]:
    return {kind: {k: plain(v) for k, v in parts.items()} for kind, parts in spectra.items()}

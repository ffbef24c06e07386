"""What the numbers of channels are: names of quantities, and their units where they have some."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """A name such as "u_x", and a unit such as "mm"; numbers without one have an empty unit."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @classmethod
    def of(cls, text: str) -> Quantity:
        """From a text as it is shown, "u_x (mm)"."""
        name, opened, unit = text.strip().removesuffix(")").rpartition(" (")
        return cls(name.strip(), unit) if opened and text.strip().endswith(")") else cls(text.strip())


@dataclass(frozen=True)
class Quantities:
    """Those of input and of target channels, in their order; of problems in time, of the fields of a frame.

    Empty where they are not known.
    """

    inputs: tuple[Quantity, ...] = ()
    targets: tuple[Quantity, ...] = ()


def called(*texts: str) -> tuple[Quantity, ...]:
    """Of texts such as "u_x (mm)"."""
    return tuple(map(Quantity.of, texts))

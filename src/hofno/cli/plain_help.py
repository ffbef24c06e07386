"""Help in the width of the terminal that names no type where there is nothing to give: a flag is only a flag."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from hofno.cli.prose import joined


def without_types(parameters: list[Any]) -> list[Any]:
    """Parameters whose flags are shown with no `<bool>` after them, arguments of any number with no `<list[..]>`."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif getattr(parameter, "nargs", 1) == -1:
            parameter.display_type_rich = lambda ctx: None
    return parameters


class PlainCommand(TyperCommand):
    def __init__(self, *args: Any, help: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, help=joined(help or ""), **kwargs)

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))

"""The keys of a spec, with their types, defaults and meanings: `hofno show --train` and `hofno show --spec`."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from hofno.cli.options import print_table

if TYPE_CHECKING:
    from pydantic import BaseModel

SECTIONS = ("data", "model", "train", "compare", "sweep")


def show_train_keys() -> None:
    """Print the keys of [train]."""
    from hofno.spec import TrainSpec

    print_table("settings of training, the keys of [train]", *described(TrainSpec))


def show_spec_keys() -> None:
    """Print the keys that stand at the top of a spec, and its sections."""
    from hofno.spec import Spec

    header, rows = described(Spec)
    print_table("keys at the top of a spec", header, [row for row in rows if row[0] not in SECTIONS])
    sections = [[row[0], row[-1]] for row in rows if row[0] in SECTIONS]
    print_table("its sections; those of one run, then those of a study", ["name", "what it holds"], sections)


def described(kind: type[BaseModel]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of a model's fields; of a choice its values stand above what it means."""
    rows: list[list[str]] = []
    for name, field in kind.model_fields.items():
        default = "(needed)" if field.is_required() else _written(field.get_default(call_default_factory=True))
        is_choice = get_origin(field.annotation) is Literal
        choices = [type_name(field.annotation)] if is_choice else []
        meaning = "\n".join([*choices, field.description or ""])
        rows.append([name, "choice" if is_choice else type_name(field.annotation), default, meaning])
    return ["name", "type", "default", "meaning"], rows


def _written(value: object) -> str:
    """A default as a spec has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_name(kind: Any) -> str:
    """A type as people write it; of a choice, its values."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin is Annotated:
        return type_name(parts[0])
    if origin in (Union, UnionType):
        return " | ".join(map(type_name, parts))
    if isinstance(origin, type):
        return f"{origin.__name__}[{', '.join('...' if part is ... else type_name(part) for part in parts)}]"
    return "None" if kind is type(None) else kind.__name__ if isinstance(kind, type) else str(kind)

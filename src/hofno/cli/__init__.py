"""The command line `hofno`: one module for each kind of command, `app` gathers them.

- `app`: the program, its global flags, and how errors are told.
- `describe`: show, list.
- `make`: generate, train, run.
- `use`: evaluate, predict, report, bench, check.
- `paper`: the tables and figures of the paper.
- `keys`: the keys of a spec.
- `plain_help`, `prose`: how the help and cards are told.
- `options`: arguments that several commands share, and how a spec is found.
"""

from __future__ import annotations

from hofno.cli.app import app, main

__all__ = ["app", "main"]

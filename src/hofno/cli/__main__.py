"""`python -m hofno.cli` is the program `hofno`."""

from __future__ import annotations

from hofno.cli.app import main

main()

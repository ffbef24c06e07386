"""`python -m hofno` is the program `hofno`."""

from __future__ import annotations

from hofno.cli import main

main()

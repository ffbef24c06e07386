"""Files of results/checks as tools write them: what was found, with commit, date, device and versions."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from hofno import storage
from hofno.versions import versions

CHECKS = Path(__file__).resolve().parent.parent / "results" / "checks"


def write_check(name: str, title: str, device: str, remark: str, **found: Any) -> None:
    """Write results/checks/NAME.json; the commit is that of the checkout."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    record = {"name": name, "title": title, "device": device, "remark": remark, "commit": commit.stdout.strip()}
    record |= {"created": date.today().isoformat(), "versions": versions(), **found}
    storage.write_json(CHECKS / f"{name}.json", record)

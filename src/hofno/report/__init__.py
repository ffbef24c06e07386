"""Reports: measured numbers beside published ones, as tables, figures and one page that stands alone.

`published` holds the numbers of the paper as data, `tables` turns results files into text, `figures` draws,
and `Page` binds all of it into `index.html` and `report.md`. Matplotlib is imported only when drawing.
"""

from __future__ import annotations

from hofno.report import figures, published, tables
from hofno.report.page import Page

__all__ = ["Page", "figures", "published", "tables"]

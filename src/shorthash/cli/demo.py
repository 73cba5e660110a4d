"""shorthash demo: everything once, on data that is already there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, option
from shorthash.cli.progress import progress

__all__ = ["demo"]


def demo(
    out: Annotated[Path, option("--out", "-o", metavar="FOLDER", text="Folder for report.html.", default=True)] = Path(
        "demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Try everything on handwritten digits and write a report.

    Codes of 4, 6, 8 and 10 bits are learned for the digits that come with scikit-learn; 300 digits are queries, the
    others are learned from and searched in. FOLDER/report.html shows what came of it.

    \b
    Example:
      shorthash demo --out demo
    """
    from shorthash._validation import require_extra
    from shorthash.lab.demo import run_demo
    from shorthash.lab.demo_page import demo_table, write_demo

    for module in ("matplotlib", "jinja2"):  # now, not after all the work
        require_extra(module, "report", "shorthash demo")
    with progress() as tell:
        result = run_demo(progress=tell)
        tell("writing the report", len(result.runs), len(result.runs) + 1)
        path = write_demo(result, out)
    table = demo_table(result)
    titles = [column.title for column in table.columns]
    data = {"report": str(path), "rows": [dict(zip(titles, row, strict=True)) for row in table.rows]}
    output.show(output.Answer(data, {}, (table,), (f"report: {path}",)), as_json=as_json)

"""What a run leaves for a person to look at when it ends."""

import logging
from pathlib import Path

from dfl_dist.report.groups import group_runs
from dfl_dist.report.page import write_page
from dfl_dist.report.read import read_run

log = logging.getLogger(__name__)
HINT = "for pictures as well: pip install 'dfl-dist[plot]', then dfl-dist report --figures FOLDER {}"


def write_report(folder: Path, shown: str) -> str:
    """Write report.html and report.png from the run folder; a line that says where they are, or what to do."""
    groups = group_runs([read_run(folder)])
    write_page(groups, folder / "report.html")
    try:
        from dfl_dist.report.figures import draw_overview

        draw_overview(groups, folder / "report.png")
    except ImportError:
        return f"report: {shown}/report.html\n{HINT.format(shown)}"
    return f"report: {shown}/report.html, report.png"

"""A small grid, and its runs made without a sweep: in this process, which gives the bits of any other layout."""

from pathlib import Path

from dfl_dist import train
from dfl_dist.sweep.cells import Place, State, prepare
from dfl_dist.sweep.grid import read_sweep
from dfl_dist.sweep.locks import GUARD

ROUNDS = 20
GRID = f"""
out: out
ranks: 2
settings:
  num_clients: 4
  rounds: {ROUNDS}
  report: false
  graph: {{out_degree: 2}}
  model: {{name: 'small_models:slow'}}
  local: {{steps: 1}}
  checkpoint: {{every: 5}}
grid:
  algorithm: [dfedsgpsm, osgp]
  seed: [0, 1]
"""
CELLS = ["dfedsgpsm-seed0", "dfedsgpsm-seed1", "osgp-seed0", "osgp-seed1"]


def finish_cells(folder: Path, number: int | None = None) -> None:
    """Write the sweep file g.yaml, and leave its first cells, or all, as a sweep that has finished them would."""
    file = folder / "g.yaml"
    file.write_text(GRID)
    sweep = read_sweep(file, {})
    place = Place(folder / sweep.out, sweep.ranks)
    place.out.mkdir()
    (place.out / GUARD).touch()
    for cell in sweep.cells[:number]:
        out = place.folder(cell)
        prepare(cell, out, State.TO_DO)
        train({**cell.given, "out": str(out)})
        place.log(cell).write_text("--- a start\n")

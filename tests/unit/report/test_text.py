"""`dfl-dist report`: its tables, read from run folders alone, and its refusals."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import lead, read_groups, write_run

from dfl_dist.commands.main import main
from dfl_dist.report import text
from dfl_dist.report.paper_table import make_grid


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line)


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, str]]:
    """The table's lines by the names of its columns."""
    assert main(["report", *map(str, words)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    return [dict(zip(cells(head), cells(row), strict=True)) for row in rows]


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line that refuses these arguments."""
    assert main(["report", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# The table.


def test_one_row_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = [{"push_weight_min": 0.125, "push_weight_max": 2.0}]
    first = write_run(tmp_path / "a", [0.5, None, 0.875, 0.75], weights, algorithm="sgp")
    second = write_run(tmp_path / "b", [None, 0.9, None], algorithm="dfedsgpsm-s")
    assert shown(capsys, first, second) == [
        {
            "run": str(first),
            "algorithm": "sgp",
            "rounds": "4/4",
            "final": "75.00%",
            "best": "87.50%",
            "last 10": "70.83%",
            "test loss": "0.2500",
            "consensus": "0.125",
            "push weights": "0.125–2",
            "MB sent": "2",
            "seconds": "1.0",
        },
        {
            "run": str(second),
            "algorithm": "dfedsgpsm-s",
            "rounds": "3/4, unfinished",
            "final": "90.00%",
            "best": "90.00%",
            "last 10": "90.00%",
            "test loss": "0.2500",
            "consensus": "0.125",
            "push weights": "0.5–1.5",
            "MB sent": "1.5",
            "seconds": "0.8",
        },
    ]


def test_one_row_per_group_where_seeds_differ_in_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25, "client_accuracy_max": 0.75}
    write_run(tmp_path / "a0", [0.5, 0.80], [own, {"push_weight_min": 0.25}], rounds=2)
    write_run(tmp_path / "a1", [0.7, 0.84], [own | {"client_accuracy_min": 0.125}], rounds=2, seed=1)
    write_run(tmp_path / "a2", [0.6, 0.88], [own | {"client_accuracy_mean": 0.8}], rounds=2, seed=2)
    write_run(tmp_path / "b0", [0.65], rounds=2, data__alpha=0.6)
    write_run(tmp_path / "b1", [None, 0.75], rounds=2, data__alpha=0.6, seed=1)
    write_run(tmp_path / "b2", [None], rounds=2, data__alpha=0.6, seed=2)
    first, second = shown(capsys, tmp_path, "--target", "65%")
    assert first == {
        "algorithm": "dfedsgpsm",
        "partition": "Dir-0.3",
        "seeds": "3",
        "rounds": "2/2",
        "final": "84.00 ± 4.00%",
        "best": "84.00 ± 4.00%",
        "last 10": "72.00 ± 6.24%",  # of 65, 77 and 74
        "test loss": "0.2500",
        "clients": "60.0% (12.5–75.0)",
        "to 65%": "1.7 ± 0.6",  # of 2, 1 and 2
        "consensus": "0.125",
        "push weights": "0.25–1.5",
        "MB sent": "1",
        "seconds": "0.5",
    }
    assert second["rounds"] == "1–2/2, 2 of 3 unfinished"
    assert (second["final"], second["clients"]) == ("70.00 ± 7.07% (2/3)", "-")
    assert second["to 65%"] == "1.5 ± 0.7 (2/3)"


def test_what_is_not_there_yet_is_a_dash_and_a_link_no_second_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young = write_run(tmp_path / "young", [None])
    (tmp_path / "latest").symlink_to(young)
    hot = write_run(tmp_path / "zz", [0.5], [{"test_loss": None, "push_weight_min": None, "train_loss": None}])
    named, _ = shown(capsys, tmp_path / "latest", tmp_path)
    assert named["run"] == str(tmp_path / "latest"), "the name given first"
    rows = shown(capsys, young, tmp_path, "--target=0.9")
    assert [row["run"] for row in rows] == [str(young), str(hot)], "the folder of runs stands for all of them"
    accuracies = ("rounds", "final", "best", "last 10", "test loss", "to 90%", "consensus", "push weights")
    assert [rows[0][name] for name in accuracies] == ["1/4, unfinished", "-", "-", "-", "-", "-", "-", "0.5–1.5"]
    assert [rows[1][name] for name in accuracies] == ["1/4, diverged", "-", "50.00%", "-", "-", "-", "-", "-"]
    empty = write_run(tmp_path / "empty", [])
    (empty / "metrics.jsonl").unlink()
    (row,) = shown(capsys, empty)
    assert row["rounds"] == "0/4, unfinished"
    assert {row[name] for name in (*accuracies[1:5], "MB sent", "seconds")} == {"-"}


def test_a_run_is_finished_when_its_results_were_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not when its last round was recorded, as where the disk is full then; `stop` ends it before."""
    lead(write_run(tmp_path / "full", [0.5] * 4))
    lead(write_run(tmp_path / "enough", [0.5], algorithm="sgp"), finished_after=1, ended_by="stop.target 0.5")
    assert [row["rounds"] for row in shown(capsys, tmp_path)] == ["1/4", "4/4, unfinished"]


def test_a_repeated_seed_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", [0.5])
    again = write_run(tmp_path / "b", [0.5])
    assert [row["final"] for row in shown(capsys, tmp_path)] == ["50.00%", "50.00%"], "without other seeds: all runs"
    write_run(tmp_path / "c", [0.7], seed=1)
    assert main(["report", str(tmp_path)]) == 0
    _, row, note = capsys.readouterr().out.splitlines()
    assert cells(row)[:4] == ["dfedsgpsm", "2", "1/4, unfinished", "60.00 ± 14.14%"]
    assert note == f"left out: {again}, which has the settings and the seed of another"


def test_bytes_are_counted_in_what_suits_the_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", [0.5], [{"bytes_sent": 1_500_000_000}])
    write_run(tmp_path / "b", [0.5], [{"bytes_sent": 250_000_000}], algorithm="fedavg")
    assert [row["GB sent"] for row in shown(capsys, tmp_path)] == ["1.5", "0.25"]


def test_rounds_asked_are_in_the_column_of_rounds_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", [0.5], rounds=1)
    write_run(tmp_path / "b", [0.5, 0.6], rounds=2)
    write_run(tmp_path / "c", [0.5, 0.6], rounds=2, seed=1)
    rows = shown(capsys, tmp_path)
    assert [row["rounds"] for row in rows] == ["1/1", "2/2"]
    assert list(rows[0])[:4] == ["algorithm", "seeds", "rounds", "final"]


# Methods × data.


def grid_of_runs(folder: Path) -> list[Path]:
    """Three methods on three partitions, two seeds of each; one cell is missing and one not finished."""
    finals = {
        "sgp": {"dirichlet-0.6": (0.80, 0.82), "iid-0.3": (0.90, 0.90), "dirichlet-0.3": (0.70, 0.72)},
        "dfedsgpsm": {"dirichlet-0.6": (0.85, 0.87), "iid-0.3": (0.95, 0.97), "dirichlet-0.3": (0.75, 0.71)},
        "d-psgd": {"dirichlet-0.6": (0.81, 0.85), "iid-0.3": (0.60, 0.62)},
    }
    found = []
    for method, parts in finals.items():
        for part, values in parts.items():
            partition, alpha = part.split("-")
            for seed, value in enumerate(values):
                rounds = 1 if (method, partition) == ("d-psgd", "iid") else 2
                settings = {"algorithm": method, "data__partition": partition, "data__alpha": float(alpha)}
                path = folder / f"{method}-{part}-{seed}"
                found.append(write_run(path, [0.5, value][-rounds:], rounds=2, seed=seed, **settings))
    return found


def test_latex_has_methods_as_rows_and_partitions_as_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid_of_runs(tmp_path)
    assert main(["report", str(tmp_path), "--latex", "-"]) == 0
    out = capsys.readouterr().out
    assert r"\begin{tabular}{lccc}" in out
    head = out[out.index(r"\toprule") : out.index(r"\midrule")].split("\n")
    assert head[1:4] == [
        r"& \multicolumn{3}{c}{digits} \\",
        r"\cmidrule(lr){2-4}",
        r"Method & Dir-0.3 & Dir-0.6 & IID \\",
    ]
    body = out[out.index(r"\midrule") + len(r"\midrule") : out.index(r"\bottomrule")].strip().split("\n")
    assert body == [
        r"D-PSGD & - & \underline{83.00 $\pm$ 2.83} & 61.00 $\pm$ 1.41$^\dagger$ \\",
        r"DFedSGPSM & \textbf{73.00 $\pm$ 2.83} & \textbf{86.00 $\pm$ 1.41} & \textbf{96.00 $\pm$ 1.41} \\",
        r"SGP & \underline{71.00 $\pm$ 1.41} & 81.00 $\pm$ 1.41 & \underline{90.00 $\pm$ 0.00} \\",
    ]
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", out)
    assert caption == (
        r"Test accuracy (\%) of the mean model after 2 rounds, mean $\pm$ sample standard deviation over 2 seeds. "
        r"The best of each column is in bold, the second best underlined. $^\dagger$ not all runs are finished."
    )


def test_latex_is_well_formed(tmp_path: Path) -> None:
    """Also with two data sets, other settings and signs that mean something to TeX."""
    shards = {"data__partition": "shards", "data__classes_per_client": 3}
    runs = [
        write_run(tmp_path / "a", [0.5], data__name="cifar10", model__name="mine:net"),
        write_run(tmp_path / "b", [0.6], data__name="my.50%:load&more", model__name="mine:net", graph__out_degree=2),
        write_run(tmp_path / "c", [0.6], data__name="cifar10", model__name="mine:net", **shards),
    ]
    written = text.latex(read_groups(*runs))
    assert r"\multicolumn{2}{c}{CIFAR-10} & \multicolumn{1}{c}{my.50\%:load\&more} \\" in written
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in written
    assert r"Method & Dir-0.3 & Shards-3 & Dir-0.3 \\" in written
    assert r"DFedSGPSM, out-degree 2 & - & - & 60.00$^\dagger$ \\" in written
    assert "of one seed" in written
    assert r"\textbf" not in written, "a row alone in its column is not the best of several"
    bare = re.sub(r"\\[&%$#_{}]", "", written)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert re.findall(r"\\begin\{(\w+)\}", bare) == re.findall(r"\\end\{(\w+)\}", bare)[::-1] == ["table", "tabular"]
    columns = len(re.findall(r"\\begin\{tabular\}\{(\w+)\}", bare)[0])
    rows = [line for line in bare.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(rows) == 3
    assert {line.count("&") + 1 for line in rows} == {columns}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX")
def test_latex_compiles(tmp_path: Path) -> None:
    written = text.latex(read_groups(*grid_of_runs(tmp_path / "runs")))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{written}\end{{document}}"
    (tmp_path / "page.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 0


@given(st.text())
def test_escaped_text_has_no_sign_left_that_tex_acts_on(given_text: str) -> None:
    escaped = text.escape_latex(given_text.replace("±", "").replace("†", ""))
    known = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}|\\[&%$#_{}]"
    assert not set("\\&%$#_{}~^<>|") & set(re.sub(known, "", escaped))


def test_equal_accuracies_share_the_first_place(tmp_path: Path) -> None:
    """They look the same to 0.01 %."""
    runs = [
        write_run(tmp_path / "a", [0.5], algorithm="sgp"),
        write_run(tmp_path / "b", [0.500001], algorithm="osgp"),
        write_run(tmp_path / "c", [0.4], algorithm="dfedavg"),
    ]
    written = text.latex(read_groups(*runs))
    assert written.count(r"\textbf{50.00}") == 2
    assert written.count(r"\underline{40.00}") == 1


def test_an_alpha_that_is_not_used_makes_no_other_cell(tmp_path: Path) -> None:
    """Runs on iid data that differ in alpha are seeds of one cell."""
    runs = [
        write_run(tmp_path / "a", [0.5], data__partition="iid", rounds=1),
        write_run(tmp_path / "b", [0.7], data__partition="iid", data__alpha=0.6, seed=1, rounds=1),
    ]
    assert r"DFedSGPSM & 60.00 $\pm$ 14.14 \\" in text.latex(read_groups(*runs))


def test_divisions_in_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By their folders; those whose folders too are called the same share no cell all the same."""
    files = ("pa/partition.npz", "pb/partition.npz", "other/pb/partition.npz", "own.npz")
    runs = [write_run(tmp_path / file, [0.5], data__partition="file", data__file=file) for file in files]
    groups = read_groups(*runs)
    assert [column.partition for column in make_grid(groups).columns] == [
        *("pb/partition", "own", "pa/partition", "pb/partition"),
    ]
    assert [group.data for group in groups[:2]] == [("pa/partition",), ("pb/partition",)]
    head, *rows = map(cells, text.terminal(groups, None).splitlines())
    assert [row[head.index("partition")] for row in rows] == ["pa/partition", "pb/partition", "pb/partition", "own"]


def test_markdown_has_methods_by_data_and_then_all_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid_of_runs(tmp_path)
    assert main(["report", str(tmp_path), "--markdown", "-"]) == 0
    first, said, second = capsys.readouterr().out.strip().split("\n\n")
    assert first.split("\n") == [
        "| method | digits Dir-0.3 | digits Dir-0.6 | digits IID |",
        "| --- | ---: | ---: | ---: |",
        "| D-PSGD | - | *83.00 ± 2.83* | 61.00 ± 1.41† |",
        "| DFedSGPSM | **73.00 ± 2.83** | **86.00 ± 1.41** | **96.00 ± 1.41** |",
        "| SGP | *71.00 ± 1.41* | 81.00 ± 1.41 | *90.00 ± 0.00* |",
    ]
    assert "over 2 seeds" in said
    head, rule, *rows = [line.strip("| ").split(" | ") for line in second.split("\n")]
    assert head[:4] == ["algorithm", "partition", "seeds", "rounds"]
    assert len(rows) == 8
    assert {len(row) for row in rows} == {len(head)} == {len(rule)}
    assert "0.2500 ± 0.0000" in rows[0], "there is room for every deviation"


def test_the_caption_says_after_how_many_rounds_runs_that_stop_has_ended_were_scored(tmp_path: Path) -> None:
    stopped = [write_run(tmp_path / f"{alpha}", [0.5, 0.9], rounds=40, data__alpha=alpha) for alpha in (0.3, 0.6)]
    for run in stopped:
        lead(run, finished_after=2, ended_by="stop.target 0.9")
    assert "of the mean model after 2 rounds, of one seed" in text.markdown(read_groups(*stopped), None)
    short = [write_run(tmp_path / f"short {alpha}", [0.5], rounds=1, data__alpha=alpha) for alpha in (0.3, 0.6)]
    assert "of the mean model after 1 round, of one seed" in text.markdown(read_groups(*short), None)
    longer = write_run(tmp_path / "longer", [0.5] * 3, rounds=3, data__partition="iid")
    assert "of the mean model after the last round, of one seed" in text.markdown(read_groups(*stopped, longer), None)


def test_markdown_of_one_partition_is_the_table_alone(tmp_path: Path) -> None:
    written = text.markdown(read_groups(write_run(tmp_path / "x|_y_<b>", [0.5])), None)
    assert len(written.strip().split("\n")) == 3
    assert "x\\|\\_y\\_\\<b>" in written
    assert "| algorithm |" in written


# The command.


def test_files_are_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [0.5])
    markdown, latex = tmp_path / "table.md", tmp_path / "table.tex"
    assert main(["report", str(run), f"--markdown={markdown}", "--latex", str(latex)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("run ")
    assert out[-2:] == [f"written: {markdown}", f"written: {latex}"]
    assert markdown.read_text() == text.markdown(read_groups(run), None)
    assert latex.read_text() == text.latex(read_groups(run))
    assert main(["report", str(run), "--markdown", str(markdown), "--latex", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out == latex.read_text(), "what is piped is alone on stdout"
    assert captured.err == f"written: {markdown}\n"


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", [0.5])
    assert main(["report", str(run), "--html", str(tmp_path / "report.html")]) == 0
    assert f"written: {tmp_path / 'report.html'}" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "report: given nothing, allowed: the folders of runs"),
        (["--target", "0.9"], "report: given nothing, allowed: the folders of runs"),
        (["nowhere"], "run: given nowhere, allowed: the folder of a run"),
        (["run", "--targe", "0.9"], "option: given --targe, allowed: --target, --markdown"),
        (["run", "--targe=0.9"], "(did you mean --target?)"),
        (["run", "--target"], "target: given nothing, allowed: ACC"),
        (["run", "--markdown", "--latex", "-"], "markdown: given nothing, allowed: FILE|-"),
        (["run", "--target", "90"], "target: given 90, allowed: above 0, at most 1, or so in percent"),
        (["run", "--target", "nan"], "target: given nan"),
        (["run", "--target", "high"], "target: given high"),
        (["run", "--markdown", "none/a.md"], "markdown: given none/a.md, allowed: a file that can be written"),
        (["run", "--latex", "run"], "latex: given run, allowed: a file that can be written"),
        (["run", "--html", "none/a.html"], "html: given none/a.html, allowed: a file that can be written"),
        (["run", "--html", "-"], "html: given -, allowed: a file"),
        (["run", "--latex", "a", "--markdown", "a"], "markdown: given a, allowed: a file for each"),
        (["run", "--figures", "run/config.yaml"], "figures: given run/config.yaml, allowed: a folder"),
        (["run", "--figures", "run/config.yaml/x"], "figures: given run/config.yaml/x, allowed: a folder"),
        (["run", "--figures", "f", "--format", "pngg"], "format: given pngg, allowed: png, svg or png,svg (did you"),
        (["run", "--format", "svg"], "format: given svg, allowed: with --figures FOLDER only"),
    ],
)
def test_mistakes_are_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", [0.5])
    assert line in refused(capsys, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_figures_without_matplotlib_are_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = write_run(tmp_path / "run", [0.5])
    line = "dfl-dist: figures: needs matplotlib, which is not installed: pip install 'dfl-dist[plot]'\n"
    assert refused(capsys, run, "--figures", tmp_path / "figures") == line
    assert main(["report", str(run)]) == 0, "tables need nothing"


def test_help_says_what_every_column_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    said = capsys.readouterr().out
    assert "usage: dfl-dist report FOLDER" in said
    own = {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25, "client_accuracy_max": 0.75}
    (row,) = shown(capsys, write_run(tmp_path / "run", [0.5], [own]))
    assert all(f"\n  {name}  " in said for name in row if name != "run")

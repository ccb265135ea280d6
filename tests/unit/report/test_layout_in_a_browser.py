"""How report.html is laid out, measured in a real browser: nothing cut, nothing blank, curves that can be compared."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from browsing import Browser, start_browser
from run_folders import read_groups, write_run

from dfl_dist.report.page import write_page

DESK, PHONE = (1280, 800), (390, 844)
FINALS = {"dfedsgpsm": 0.97, "osgp": 0.94, "fedavg": 0.92}
PARTITIONS: dict[str, dict[str, Any]] = {
    "iid": {"data__partition": "iid"},
    "dir-0.3": {"data__alpha": 0.3},
    "dir-0.1": {"data__alpha": 0.1},
}
OWN = {"client_accuracy_mean": 0.9, "client_accuracy_min": 0.75, "client_accuracy_max": 0.96}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    yield from start_browser(tmp_path_factory.mktemp("profile"))


def write_rising(folder: Path, final: float, more: dict[str, Any] | None = None, **settings: Any) -> Path:
    """A run of 20 rounds that rises to an accuracy within the first of them."""
    accuracies = [final - 0.7 / (4 * round_idx + 1) ** 2 for round_idx in range(20)]
    return write_run(folder, accuracies, [more or {}] * 20, rounds=20, **settings)


def write(page: Path, *runs: Path) -> Path:
    write_page(read_groups(*runs), page)
    return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run with and without an evaluation of its clients; a sweep of three partitions; one of a single partition."""
    folder = tmp_path_factory.mktemp("pages")
    sweep = [
        write_rising(
            folder / f"{part}-{method}-{seed}",
            FINALS[method] - 0.01 * place - 0.004 * seed,
            OWN,
            algorithm=method,
            seed=seed,
            **PARTITIONS[part],
        )
        for (place, part), method, seed in product(enumerate(PARTITIONS), FINALS, (0, 1))
    ]
    diverged = {"train_loss": None, "test_accuracy": None, "test_loss": None}
    hot = write_run(
        folder / "hot", [0.5], [diverged], algorithm="dfedavgm", local__lr=50.0, local__clip_norm=0.0, rounds=20
    )
    radii = [
        write_rising(folder / f"rho-{rho}-{seed}", 0.95 - rho / 10, local__rho=rho, seed=seed)
        for rho, seed in product((0.05, 0.1, 0.2), (0, 1))
    ]
    return {
        "run": write(folder / "run.html", write_rising(folder / "run", 0.95, OWN, num_clients=12)),
        "plain run": write(folder / "plain.html", radii[0]),
        "partitions": write(folder / "partitions.html", *sweep, hot),
        "one partition": write(folder / "one.html", *radii),
    }


NAMES = ("run", "plain run", "partitions", "one partition")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "height"), [DESK, PHONE])
def test_nothing_is_cut_and_no_tile_is_blank(
    browser: Browser, pages: dict[str, Path], name: str, width: int, height: int
) -> None:
    browser.open(pages[name], width=width, height=height)
    assert browser.fits(width)
    assert browser.complaints() == []
    empty = browser.run("""
        const filled = (box, parts) => {
            const rows = new Map();
            for (const part of parts) {
                const { top, left, right } = part.getBoundingClientRect();
                rows.set(Math.round(top), [...(rows.get(Math.round(top)) ?? []), [left, right]]);
            }
            const { left, right } = box.getBoundingClientRect();
            return [...rows.values()].every((row) => Math.abs(Math.min(...row.flat()) - left) < 3
                && Math.abs(Math.max(...row.flat()) - right) < 3);
        };
        return ['.facts', '.charts'].filter((name) => [...document.querySelectorAll(name)]
            .some((box) => !filled(box, [...box.children])))""")
    assert empty == [], "the last row is as wide as the others"
    texts = browser.run(
        "return [...document.querySelectorAll('.facts > div > *')].map((one) => one.textContent.trim())"
    )
    assert len(texts) >= 18
    assert all(texts)
    if (width, height) == DESK:
        more = "map((one) => one.offsetWidth - one.parentElement.clientWidth)"
        cut = browser.run(f"return [...document.querySelectorAll('.compare')].{more}")
        assert all(width <= 0 for width in cut), "tables are seen whole"


@pytest.mark.parametrize("name", ["partitions", "one partition"])
def test_accuracies_are_in_sight_on_a_phone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=PHONE[0], height=PHONE[1])
    tables = "[...document.querySelectorAll('.compare')]"
    right = f"return {tables}.map((one) => one.querySelector('tbody tr:not(.part) td').getBoundingClientRect().right)"
    assert all(edge <= PHONE[0] for edge in browser.run(right))
    numbers = browser.run(f"return {tables}.map((one) => one.querySelector('tbody tr:not(.part) td').textContent)")
    assert all(float(text.split()[0]) > 90 for text in numbers)
    names = f"""
        return {tables}.filter((one) => one.offsetWidth > one.parentElement.clientWidth).map((one) => {{
            one.parentElement.scrollLeft = 80;
            const name = one.querySelector('tbody tr:not(.part) th').getBoundingClientRect();
            return [one.parentElement.scrollLeft, name.left - one.parentElement.getBoundingClientRect().left];
        }})"""
    moved = browser.run(names)
    assert moved
    assert all(scrolled > 0 and abs(away) < 1 for scrolled, away in moved), "the names stay while the numbers scroll"


@pytest.mark.parametrize("name", ["run", "plain run"])
def test_a_curve_is_seen_without_scrolling(browser: Browser, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=DESK[0], height=DESK[1])
    top, bottom = browser.run("""
        const { top, bottom } = document.querySelector('#chart-accuracy svg[role=img]').getBoundingClientRect();
        return [top, bottom]""")
    assert top < bottom < DESK[1], "all of it"
    assert browser.run("return document.querySelectorAll('#chart-accuracy .line').length") >= 1
    rows = "return new Set([...document.querySelectorAll('.facts > div')].map((one) => one.offsetTop)).size"
    assert browser.run(rows) == 1, "the numbers take one row"


def test_every_partition_has_its_axes_and_every_method_its_colour(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["partitions"], width=DESK[0], height=DESK[1])
    titles = "return [...document.querySelectorAll('#row-accuracy h4')].map((one) => one.textContent)"
    assert browser.run(titles) == ["Dirichlet 0.1", "Dirichlet 0.3", "IID"]
    colours = browser.run("""
        const all = (selector) => [...document.querySelectorAll(selector)];
        return all('.chart .line').map((one) => [one.dataset.series, one.style.stroke])
            .concat(all('#curves > .legend .key, .compare tbody tr:not(.part) th').map((one) =>
                [one.textContent.replace(' †', ''), one.querySelector('line').style.stroke]))""")
    assert {name for name, _ in colours} == {"DFedSGPSM", "OSGP", "FedAvg", "DFedAvgM, learning rate 50, no clipping"}
    assert len({tuple(pair) for pair in colours}) == len({colour for _, colour in colours}) == 4
    lines = "map((one) => one.querySelectorAll('.line').length)"
    assert browser.run(f"return [...document.querySelectorAll('#row-accuracy .chart')].{lines}") == [3, 3, 3], (
        "those that have something to draw"
    )


def test_the_accuracy_axis_shows_differences_and_says_where_it_starts(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["partitions"], width=DESK[0], height=DESK[1])
    ticks = """
        return [...document.querySelectorAll('#row-accuracy .chart')].map((one) =>
            [...one.querySelectorAll('.ticks.y text')].map((tick) => parseFloat(tick.textContent)))"""
    notes = "#row-accuracy .axis-note"
    shared = browser.run(ticks)
    assert shared[0] == shared[1] == shared[2], "partitions can be compared"
    assert 80 < min(shared[0]) < 92
    assert max(shared[0]) <= 100
    assert browser.texts(notes) == [f"axis starts at {min(shared[0]):g} %, not at 0"] * 3
    clipped = browser.run("""
        const inside = document.querySelector('#row-accuracy .inside');
        const [box, line] = [inside.viewBox.baseVal, inside.querySelector('.line').getBBox()];
        return [getComputedStyle(inside).overflow, line.y + line.height > box.y + box.height]""")
    assert clipped == ["hidden", True], "the first rounds are below, and are cut off rather than drawn along the axis"
    browser.run("document.querySelector('[data-value=own]').click()")
    own = browser.run(ticks)
    assert own[0] != own[2], "each as its own lines need it"
    browser.run("document.querySelector('[data-value=full]').click()")
    assert [[tick[0], tick[-1]] for tick in browser.run(ticks)] == [[0, 100]] * 3
    assert browser.texts(notes) == []


def test_a_method_that_the_axis_leaves_out_is_named(browser: Browser, tmp_path: Path) -> None:
    runs = [write_rising(tmp_path / f"seed-{n}", 0.95, local__rho=0.01 * n) for n in range(11)]
    low = write_run(tmp_path / "low", [0.1] * 20, algorithm="asyng", rounds=20)
    browser.open(write(tmp_path / "report.html", *runs, low), width=DESK[0], height=DESK[1])
    assert browser.text("#chart-accuracy .below") == "Below this axis: AsyNG."
    browser.run("document.querySelector('[data-value=full]').click()")
    assert browser.run("return document.querySelector('#chart-accuracy .below').hidden")


def test_a_partition_is_sorted_within_itself(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["partitions"])
    names = """
        return [...document.querySelectorAll('.numbers tbody')].map((part) =>
            [...part.querySelectorAll('th')].map((one) => one.textContent))"""
    browser.one(".numbers [data-column='1']").click()
    best, hot = ["DFedSGPSM", "OSGP", "FedAvg"], "DFedAvgM, learning rate 50, no clipping †"
    assert browser.run(names) == [["Dirichlet 0.1", *best], ["Dirichlet 0.3", *best, hot], ["IID", *best]]
    browser.one(".numbers [data-column='1']").click()
    assert browser.run(names)[1] == ["Dirichlet 0.3", *reversed(best), hot], "what is not known comes last"

"""`dfl-dist watch` in a real browser: the page follows a run, and a sweep, and keeps what a person has chosen."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import END, LEFT, Browser, start_browser
from launching import TIMEOUT_S, dfl_dist, lines, running, wait_for_rounds
from run_folders import GONE, HERE, lead, write_run

from dfl_dist.report.follow import Followed
from dfl_dist.report.live import Board, serving

ROUNDS = 40
RUN = ("launch", "-n", "2", "--num_clients", "8", "--rounds", str(ROUNDS), "--out", "run", "--eval.every", "1")
SMALL = ("--model.name", "small_models:slow", "--local.steps", "1", "--report", "false")
POINTS = "(id) => document.querySelector(`#chart-${id} .line`)?.getAttribute('d').split('L').length ?? 0"
AXES = "return [...new Set([...document.querySelectorAll('.chart .axis-label')].map((one) => one.textContent))]"
SHOWN = "Number(document.querySelector('.round').textContent.split(' ')[1])"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    yield from start_browser(tmp_path_factory.mktemp("profile"))


def choose_axis(browser: Browser, key: str) -> None:
    browser.run(f"document.querySelector('#curves [data-value={key}]').click()")


def complaints(browser: Browser) -> list[str]:
    """But for the requests that a live page is there for."""
    return [text for text in browser.complaints() if not text.endswith("/data.json")]


def test_the_page_follows_a_run_to_its_end(browser: Browser, tmp_path: Path) -> None:
    points = f"({POINTS})(arguments[0])"

    def wait_for_points(more: int) -> None:
        """Wait until so many rounds more are drawn, in both of the charts that have one point for each."""
        for chart in ("loss", "accuracy"):
            wanted = browser.run(f"return {points}", chart) + more
            browser.wait(f"return ({POINTS})('{chart}') >= {wanted}", TIMEOUT_S)

    with running(dfl_dist(*RUN, *SMALL), tmp_path, DFL_TEST_PASS_S="0.05") as job:
        wait_for_rounds(tmp_path / "run", 1)
        with running(dfl_dist("watch", "run"), tmp_path) as watch:
            assert watch.process.stdout
            address = re.search(r"http://127\.0\.0\.1:\d+/", watch.process.stdout.readline())
            assert address
            browser.open(address[0])
            browser.run("window.loadedOnce = true")
            choose_axis(browser, "s")
            wait_for_points(2)
            assert re.fullmatch(rf"live, round \d+ of {ROUNDS}", browser.text("#live"))
            assert browser.run(AXES) == ["seconds of training"], "as it was chosen, though drawn again"
            round_idx = browser.run(f"return {SHOWN}")
            browser.wait(f"return {SHOWN} > {round_idx}", TIMEOUT_S)  # the newest graph is shown by itself
            browser.run("document.querySelector('.steps input').focus()")
            browser.press(LEFT)
            stays = browser.run(f"return {SHOWN}")
            browser.run("document.querySelector('#settings').scrollIntoView()")
            top = "Math.round(document.querySelector('#settings').getBoundingClientRect().top)"
            before = browser.run(f"return {top}")
            wait_for_points(2)
            assert browser.run(f"return {SHOWN}") == stays, "who looks at another round stays there"
            assert abs(browser.run(f"return {top}") - before) <= 1, "what is scrolled to stays where it is"
            assert browser.run("return document.activeElement.type") == "range", "and the keyboard where it was"
            browser.press(END)
            browser.wait(f"return {SHOWN} > {stays} + 2", TIMEOUT_S)
            assert job.process.poll() is None, "all of that happened while the run was at work"
            browser.wait(
                f"return document.querySelector('#live').textContent === 'finished, {ROUNDS} rounds'", TIMEOUT_S
            )
            done = watch.finish()
    assert (done.code, done.out, done.err) == (0, f"dfl-dist watch: run: finished, {ROUNDS} rounds\n", "")
    assert browser.run("return window.loadedOnce"), "without a reload"
    assert browser.run(f"return {points}", "accuracy") == ROUNDS
    accuracy = lines(tmp_path / "run" / "metrics.jsonl")[-1]["test_accuracy"]
    assert f"reached {100 * accuracy:.2f} %" in browser.text("h1").replace("\xa0", " ")
    assert browser.text("#summary .badge") == f"finished, {ROUNDS} rounds"
    assert browser.edges() == [
        [peer for peer in row if peer != client]
        for client, row in enumerate(lines(tmp_path / "run" / "topology.jsonl")[-1]["out"])
    ], "the last graph"
    assert complaints(browser) == []


# A sweep, with folders written by hand.


def begin(folder: Path, seed: int) -> None:
    """A run that this process is at."""
    write_run(folder, [0.5, 0.5], num_clients=3, seed=seed)
    lead(folder, leader=HERE)
    write_graphs(folder, 2)


def write_graphs(folder: Path, rounds: int) -> None:
    graph = {"out": [[0, 1], [1, 2], [0, 2]], "weights": "out-degree"}
    (folder / "topology.jsonl").write_text("".join(json.dumps({"round": t, **graph}) + "\n" for t in range(rounds)))


def put(browser: Browser, followed: Followed, board: Board) -> None:
    """Put up what is in the folders now, and wait until it is drawn."""
    followed.look()
    now = followed.stand()
    board.put(followed.runs, now.text, now.running)
    browser.wait(f"return badge.dataset.version === {json.dumps(board.version)}")


def test_the_runs_of_a_sweep_appear_and_a_chosen_one_stays(browser: Browser, tmp_path: Path) -> None:
    followed, board = Followed(tmp_path), Board()
    with serving(board) as address:
        board.put([], "no run has begun yet", [])
        browser.open(address)
        assert browser.text("main") == "There is no run to show."
        begin(tmp_path / "b", 0)
        put(browser, followed, board)
        assert browser.text("#live") == "live, 1 at work"
        assert "b" in browser.text("#setup .about")
        lead(tmp_path / "b", finished_after=2)
        begin(tmp_path / "a", 1)
        begin(tmp_path / "c", 2)
        put(browser, followed, board)
        assert browser.texts("#picker option") == ["b, seed 0", "a, seed 1", "c, seed 2"]
        assert browser.text("#setup .about").endswith("/a"), "a run at work is shown, until one is chosen"
        browser.run("picker.value = 0; picker.dispatchEvent(new Event('change'))")
        assert browser.text("#run .badge") == "stopped early, 2 of 4 rounds"
        browser.one("#settings input[type=search]").send_keys("seed")
        choose_axis(browser, "mb")
        browser.run("document.querySelector('#chart-loss .key').click()")
        browser.point_at("#chart-loss svg[role=img]")
        told = browser.text("#tip")
        lead(tmp_path / "a", finished_after=2)
        put(browser, followed, board)
        assert (browser.run("return tip.hidden"), browser.text("#tip")) == (False, told), "the mouse rests on a point"
        assert browser.text("#live") == "live, 1 at work, 2 ended"
        assert browser.text("#setup .about").endswith("/b")
        assert browser.run("return document.querySelector('#settings input').value") == "seed"
        assert browser.run("return document.activeElement.type") == "search"
        assert browser.run(AXES) == ["megabytes sent"]
        assert browser.one("#chart-loss .key").get_attribute("aria-pressed") == "false"
        assert complaints(browser) == []
    browser.wait("return document.querySelector('#live').textContent === 'no longer live'")


def test_rounds_are_played_on_while_others_come(browser: Browser, tmp_path: Path) -> None:
    begin(tmp_path / "run", 0)
    followed, board = Followed(tmp_path / "run"), Board()
    followed.look()
    board.put(followed.runs, "live", [])
    button = "document.querySelector('[data-step=play]')"
    with serving(board) as address:
        browser.open(address)
        assert browser.text(".round") == "Round 2 of 2"
        browser.run(f"{button}.click()")
        assert browser.text(".round") == "Round 1 of 2"
        write_graphs(tmp_path / "run", 3)
        put(browser, followed, board)
        assert browser.run(f"return {button}.textContent") == "❚❚ pause"
        browser.wait("return document.querySelector('.round').textContent === 'Round 3 of 3'")
        browser.wait(f"return {button}.textContent === '▶ play'")
        write_graphs(tmp_path / "run", 4)
        put(browser, followed, board)
        assert browser.text(".round") == "Round 4 of 4", "and then the newest is shown again"
        assert complaints(browser) == []


def test_partitions_appear_beside_one_another_and_choices_stay(browser: Browser, tmp_path: Path) -> None:
    followed, board = Followed(tmp_path), Board()
    lead(write_run(tmp_path / "a", [0.5] * 4, algorithm="sgp"), finished_after=4)
    lead(write_run(tmp_path / "b", [0.5, 0.75], algorithm="osgp"), leader=HERE)
    followed.look()
    board.put(followed.runs, "live", [str(tmp_path / "b")])
    pressed = "return [...document.querySelectorAll('#curves [aria-pressed=true]')].map((one) => one.textContent)"
    sorted_by = "return document.querySelector('.numbers th[aria-sort$=scending]').textContent"
    with serving(board) as address:
        browser.open(address)
        assert browser.texts("#summary .badge") == ["1 running", "1 finished"]
        browser.run("document.querySelector('#curves [data-value=full]').click()")
        browser.run("document.querySelector('#curves .quiet').click()")
        browser.run("document.querySelector('#curves .key[data-series=SGP]').click()")
        browser.run("document.querySelectorAll('.numbers [data-column]')[3].click()")
        (chosen, column) = browser.run(pressed), browser.run(sorted_by)
        assert ("rounds" in chosen, "0 to 100 %" in chosen, "log scale" in chosen) == (True, True, True)
        browser.one("#settings input[type=search]").send_keys("seed")
        browser.run("scrollTo(0, 0); document.querySelector('h1').textContent = ''")
        lead(tmp_path / "b", leader=GONE)
        lead(write_run(tmp_path / "c", [0.5], algorithm="osgp", data__alpha=0.1), leader=HERE)
        put(browser, followed, board)
        assert browser.texts("#summary .badge") == ["1 running", "1 finished", "1 not finished"]
        assert browser.texts("#summary thead th") == ["method", "digits", "Dirichlet 0.1", "Dirichlet 0.3"]
        assert (browser.run(pressed), browser.run(sorted_by)) == (chosen, column)
        assert browser.run("return document.activeElement.type") == "search", "though a section was added before it"
        assert browser.run("return scrollY") == 0, "though the headline is longer"

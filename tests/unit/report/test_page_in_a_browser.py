"""report.html in a real browser: from file://, without a network, in light and dark, on a wide screen and a phone."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browsing import END, LEFT, RIGHT, Browser, start_browser
from launching import lines, train
from run_folders import read_groups, write_run

from dfl_dist.report.page import write_page

PHONE = 380
ENOUGH_CONTRAST = 4.5  # what the Web Content Accessibility Guidelines ask of text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    yield from start_browser(tmp_path_factory.mktemp("profile"))


def write(folder: Path, *runs: Path) -> Path:
    page = folder / "report.html"
    write_page(read_groups(*runs), page)
    return page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    """The folder of a real run; `browser` is asked for so that nothing is trained where there is none."""
    folder = tmp_path_factory.mktemp("real") / "run"
    arguments = ["--num_clients", "8", "--rounds", "6", "--local.steps", "2"]
    train(1, folder, *arguments, "--eval.every", "1", "--eval.clients_every", "2")
    write(folder, folder)
    return folder


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two methods with two seeds each; the second is the better."""
    folder = tmp_path_factory.mktemp("comparison")
    scores = {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25, "client_accuracy_max": 0.75}
    runs = []
    for method, seed, accuracy in [("sgp", 0, 0.5), ("sgp", 1, 0.6), ("dfedsgpsm", 0, 0.7), ("dfedsgpsm", 1, 0.9)]:
        settings = {"algorithm": method, "seed": seed, "num_clients": 3}
        accuracies = [0.1, 0.3, accuracy - 0.1, accuracy]
        runs.append(write_run(folder / f"{method}-{seed}", accuracies, [scores] * 4, **settings))
    return write(folder, *runs)


# One run.


def test_a_run_is_shown_without_a_complaint(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    assert browser.run("return location.protocol") == "file:"
    *_, last = lines(run / "metrics.jsonl")
    assert f"DFedSGPSM reached {100 * last['test_accuracy']:.2f} %" in browser.text("h1").replace("\xa0", " ")
    assert f"{100 * last['test_accuracy']:.2f} %" in browser.texts(".facts .value")
    points = browser.run("""
        return Object.fromEntries([...document.querySelectorAll('.chart')].map((chart) => [chart.id,
            [...chart.querySelectorAll('.line')].map((line) => line.getAttribute('d').split('L').length)]))""")
    expected = {"chart-accuracy": [6, 3], "chart-loss": [6, 6], "chart-consensus": [6], "chart-weights": [6, 6]}
    assert points == expected, "one point per round, and one for every other round where clients were evaluated"
    assert browser.run("return document.querySelector('#chart-loss .line').getBBox().height") > 20, "a loss that falls"
    assert browser.texts("#classes .classes .name")[0] == "samples"
    assert len(browser.texts(".settings tr")) > 40
    assert "torch" in browser.text("#environment")
    assert browser.complaints() == []


def test_the_graph_is_stepped_by_buttons_keys_and_slider(browser: Browser, run: Path) -> None:
    expected = [
        [[peer for peer in row if peer != client] for client, row in enumerate(line["out"])]
        for line in lines(run / "topology.jsonl")
    ]
    recorded = lines(run / "metrics.jsonl")

    def assert_shown(round_idx: int) -> None:
        assert browser.text(".round") == f"Round {round_idx + 1} of 6"
        assert browser.edges() == expected[round_idx]
        low, high = recorded[round_idx]["push_weight_min"], recorded[round_idx]["push_weight_max"]
        assert f"w from {float(f'{low:.4g}'):g} to {float(f'{high:.4g}'):g}" in browser.texts(".round-facts span")
        radii = browser.run("return [...document.querySelectorAll('.node')].map((node) => +node.getAttribute('r'))")
        assert max(radii) / min(radii) == pytest.approx((high / max(low, 0.06)) ** 0.5, rel=0.01)

    browser.open(run / "report.html")
    assert_shown(0)
    browser.run("document.querySelector('[data-step=on]').click()")
    assert_shown(1)
    browser.run("document.querySelector('[data-step=back]').click()")
    assert_shown(0)
    browser.run("document.querySelector('.frame').focus()")
    browser.press(RIGHT)
    browser.press(RIGHT)
    assert_shown(2)
    browser.press(LEFT)
    assert_shown(1)
    browser.run("document.querySelector('.steps input').focus()")
    browser.press(RIGHT)
    assert_shown(2)
    browser.press(END)
    assert_shown(5)
    browser.run("document.querySelector('[data-step=play]').click()")
    assert_shown(0)
    browser.wait("return document.querySelector('.round').textContent === 'Round 2 of 6'")
    browser.run("document.querySelector('[data-step=play]').click()")
    assert browser.complaints() == []


def test_a_client_tells_its_edges(browser: Browser, run: Path) -> None:
    out = lines(run / "topology.jsonl")[0]["out"]
    into = [client for client, row in enumerate(out) if 3 in row and client != 3]
    browser.open(run / "report.html")
    browser.point_at(".node[data-client='3']")
    assert browser.text("#tip .place") == "client 3"
    browser.one(".node[data-client='3']").click()
    told = browser.texts(".client-facts span")
    assert told[1] == f"out-degree {len(out[3]) - 1}, in-degree {len(into)}"
    both = sorted(set(out[3]) & set(into))
    assert told[4] == f"both ways with {', '.join(map(str, both)) or 'nobody'}"
    highlighted = browser.run("return document.querySelectorAll('.edge.out, .edge.in, .edge.both').length")
    assert highlighted == len(out[3]) - 1 + len(into) - len(both)
    browser.run("document.querySelector('.graph .switch [data-value=matrix]').click()")
    cells = browser.run("return document.querySelector('.cells:not([class*=\" \"]), .cells.faint').getAttribute('d')")
    assert cells.count("M") == sum(len(row) - 1 for row in out)
    assert browser.complaints() == []


def test_axis_legend_scale_and_cursor_of_the_charts(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    labels = "return [...document.querySelectorAll('.chart .axis-label')].map((label) => label.textContent)"
    assert set(browser.run(labels)) == {"rounds done"}
    ticks = browser.texts("#chart-accuracy .ticks.x text")
    assert ticks[-1] == "6"
    browser.run("document.querySelector('#curves [data-value=mb]').click()")
    assert set(browser.run(labels)) == {"megabytes sent"}
    assert browser.texts("#chart-accuracy .ticks.x text") != ticks
    browser.run("document.querySelector('#curves [data-value=s]').click()")
    assert set(browser.run(labels)) == {"seconds of training"}
    drawn = "return document.querySelectorAll('#chart-loss .line').length"
    key = browser.one("#chart-loss .key")
    assert (browser.run(drawn), key.get_attribute("aria-pressed")) == (2, "true")
    key.click()
    assert (browser.run(drawn), key.get_attribute("aria-pressed")) == (1, "false")
    key.click()
    assert browser.run(drawn) == 2
    ticks = browser.texts("#chart-loss .ticks.y text")
    browser.one("#chart-loss .quiet").click()
    assert browser.texts("#chart-loss .ticks.y text") != ticks
    browser.point_at("#chart-accuracy svg[role=img]")
    assert browser.text("#tip .place").startswith("after round ")
    assert "test accuracy of the mean model x̄" in browser.texts("#tip .row span")
    assert browser.complaints() == []


def test_settings_are_searched(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    shown = "return [...document.querySelectorAll('.settings tr:not([hidden]) th')].map((one) => one.textContent)"
    browser.one("#settings input[type=search]").send_keys("clients_every")
    assert browser.run(shown) == ["eval.clients_every"]
    browser.one("#settings input[type=search]").clear()
    browser.one("#settings input[type=checkbox]").click()
    found = browser.run(shown)
    assert {"num_clients", "rounds", "local.steps", "local.momentum"} <= set(found)
    assert "local.batch_size" not in found
    assert "local.steps" in browser.texts(".settings .set th")
    assert "local.momentum" in browser.texts(".settings .filled th")


# Colours and sizes.

CONTRASTS = """
    const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => {
        const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = numbers(color).map((c) => linear(c / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (one) => {
        for (let at = one; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if (numbers(color)[3] !== 0) return color;
        }
    };
    const own = (one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    return [...document.querySelectorAll('body *')]
        .filter((one) => own(one) && one.getClientRects().length && !one.closest('script, option, .count'))
        .map((one) => {
            const { fill, color } = getComputedStyle(one);
            const [a, b] = [light(one instanceof SVGElement ? fill : color), light(behind(one))];
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 90)];
        })"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_light_and_dark(browser: Browser, run: Path, scheme: str) -> None:
    browser.open(run / "report.html", scheme=scheme)
    ground = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    brightness = sum(browser.run(ground)) / 3
    assert brightness > 230 if scheme == "light" else brightness < 50
    found = browser.run(CONTRASTS)
    assert len(found) > 150
    assert [text for contrast, text in found if contrast < ENOUGH_CONTRAST] == []
    browser.one("#theme").click()
    assert abs(sum(browser.run(ground)) / 3 - brightness) > 150, "the switch turns it around"


def test_nothing_is_wider_than_a_phone(browser: Browser, run: Path, comparison: Path) -> None:
    for page in (run / "report.html", comparison):
        browser.open(page, width=PHONE)
        assert browser.fits(PHONE), page
        assert browser.run("return document.querySelector('.chart svg[role=img]').getBoundingClientRect().width") > 300
        assert browser.complaints() == []


# Several runs, and odd ones.


def test_groups_are_compared(browser: Browser, comparison: Path) -> None:
    browser.open(comparison)
    rows = ".compare tbody tr"
    assert browser.texts(f"{rows} th") == ["SGP", "DFedSGPSM"]
    final = browser.texts(f"{rows} td:nth-child(2)")
    assert final == ["55.00 ± 7.07", "80.00 ± 14.14"]
    button = browser.one(".compare [data-column='1']")
    button.click()
    assert browser.texts(f"{rows} th") == ["DFedSGPSM", "SGP"]
    assert browser.one(".compare th[aria-sort=descending]").text.startswith("final")
    button.click()
    assert browser.texts(f"{rows} th") == ["SGP", "DFedSGPSM"]
    drawn = "return [...document.querySelectorAll('.chart')].map((chart) => chart.querySelectorAll('.band').length)"
    assert browser.run(drawn) == [2] * 6
    browser.one("#curves > .legend .key").click()
    assert browser.run(drawn) == [1] * 6, "one legend for all charts"
    assert browser.text("#setup .about").startswith("MethodSGP")
    browser.run("""
        const picker = document.querySelector('#picker');
        picker.value = 3;
        picker.dispatchEvent(new Event('change'))""")
    assert browser.text("#setup .about").startswith("MethodDFedSGPSM")
    assert browser.complaints() == []


def write_odd(folder: Path) -> Iterator[Path]:
    """Pages that have little to show, or much, or that would like to be markup."""
    evil = "</script><script>console.error('run')</script><img src=x onerror=console.error(1)>"
    plain: dict[str, list[float | None]] = {"empty": [], "young": [None], "one": [0.5], "evil": [0.5, 0.75]}
    for name, accuracies in plain.items():
        odd = write_run(folder / f"<b>&{name}", accuracies, model__name=evil if name == "evil" else "auto")
        if name == "evil":
            (odd / "classes.json").write_text(json.dumps({"classes": [evil], "counts": [[1], [0]]}))
        yield write(odd, odd)
    diverged = write_run(folder / "diverged", [0.5, 0.1], [{}, dict.fromkeys(("train_loss", "test_loss"))])
    yield write(diverged, diverged)
    server = write_run(
        folder / "server", [0.5, 0.5], [{"push_weight_min": 1.0, "push_weight_max": 1.0}] * 2, num_clients=5
    )
    trained = ({"round": t, "out": None, "clients": [t, 4], "weights": "server"} for t in range(2))
    (server / "topology.jsonl").write_text("".join(json.dumps(line) + "\n" for line in trained))
    yield write(server, server)
    many = write_run(folder / "many", [0.5], num_clients=100)
    out = ((np.arange(100)[:, None] + np.array([0, 3, 14, 15])) % 100).tolist()
    (many / "topology.jsonl").write_text(json.dumps({"round": 0, "out": out, "weights": "out-degree"}) + "\n")
    (many / "classes.json").write_text(
        json.dumps({"classes": [str(i) for i in range(100)], "counts": [[1] * 100] * 100})
    )
    yield write(many, many)


def test_odd_runs_are_shown_without_a_complaint(browser: Browser, tmp_path: Path) -> None:
    seen = {}
    for page in write_odd(tmp_path):
        browser.open(page, width=PHONE)
        assert browser.complaints() == [], page
        assert browser.fits(PHONE), page
        seen[page.parent.name] = browser.run("return document.querySelector('main').textContent")
        if page.parent.name == "server":
            assert browser.run("return [...document.querySelectorAll('.edge')].map((edge) => edge.dataset.from)") == [
                "0",
                "4",
            ]
        if page.parent.name == "many":
            assert (
                browser.run("return document.querySelector('.matrix .cells:not(.self)').getAttribute('d')").count("M")
                == 300
            )
    assert "nothing is recorded yet" in seen["<b>&empty"]
    assert "not evaluated yet" in seen["<b>&young"]
    assert "</script><script>" in seen["<b>&evil"], "as text"
    assert "diverged in round 2 of 4" in seen["diverged"]
    assert "every client’s w was 1" in seen["server"]

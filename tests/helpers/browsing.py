"""A real browser for tests, or a clear reason why there is none."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
WIDE, HIGH = 1240, 900
WAIT_S = 10
RIGHT, LEFT, END = "\ue014", "\ue012", "\ue010"  # keys


def find_programs() -> tuple[str, str]:
    """The browser, by DFL_BROWSER or by its usual names, and its driver; without them there is nothing to look at."""
    named = os.environ.get("DFL_BROWSER")
    if named is not None:
        assert Path(named).is_file(), f"DFL_BROWSER names {named}, which does not exist"
    browser = named or next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "no browser (Chromium), or one named by DFL_BROWSER" if browser is None else "no chromedriver"
        assert named is None, f"DFL_BROWSER is given, but there is {missing}"
        pytest.skip(f"there is {missing}")
    return browser, driver


@dataclass(frozen=True)
class Browser:
    """A browser and what these tests ask of it."""

    driver: Any

    def open(self, page: Path | str, *, width: int = WIDE, height: int = HIGH, scheme: str = "light") -> None:
        """Load a page, by its file or its address, into a window of this size; logs begin anew."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}  # so that scrolling takes no time
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}, calm]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(page.as_uri() if isinstance(page, Path) else page)
        self.wait("return [...document.querySelectorAll('.chart svg[role=img]')].every((svg) => svg.childElementCount)")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, within_s: float = WAIT_S) -> None:
        """Wait until something has become true, for instance after the next frame was drawn."""
        WebDriverWait(self.driver, within_s, poll_frequency=0.02).until(lambda _: self.run(script))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def point_at(self, selector: str) -> None:
        """Move the mouse there."""
        found = self.one(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        webdriver.ActionChains(self.driver).move_to_element(found).perform()

    def press(self, key: str) -> None:
        self.driver.switch_to.active_element.send_keys(key)

    def fits(self, width: int) -> bool:
        """Whether the window has this width, and nothing has to be scrolled sideways to be seen."""
        page = "document.documentElement"
        needed, shown, whole = self.run(f"return [{page}.scrollWidth, {page}.clientWidth, innerWidth]")
        return bool(needed <= shown and whole == width)

    def complaints(self) -> list[str]:
        """Everything on the console, and every request but that for the page itself."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]
        assert asked, "the page itself is a request"
        own = ("data:", "chrome:")  # a page's own pictures, and the browser's own first page
        return said + [url for url in asked if url != self.driver.current_url and not url.startswith(own)]

    def edges(self) -> list[list[int]]:
        """The out-neighbours of each client, as drawn: from which circle to which arrows go, or lines both ways."""
        script = """
            const nodes = [...document.querySelectorAll('.node')]
                .map(({ cx, cy }) => [cx.baseVal.value, cy.baseVal.value]);
            const nearest = ([x, y]) => {
                const away = nodes.map(([a, b]) => Math.hypot(a - x, b - y));
                return away.indexOf(Math.min(...away));
            };
            const places = (part) => part.split('L').map((place) => place.split(' ').map(parseFloat));
            const drawn = [...document.querySelectorAll('.picture .edge')].map((edge) =>
                edge.getAttribute('d').split('M').slice(1).map(places));
            return [nodes.length, drawn.map(([line, head]) =>
                [nearest(line[0]), nearest(head ? head[0] : line[1]), head === undefined])]"""
        clients, drawn = self.run(script)
        found: list[set[int]] = [set() for _ in range(clients)]
        for start, end, both in drawn:
            found[start].add(end)
            if both:
                found[end].add(start)
        return [sorted(row) for row in found]


def start_browser(profile: Path) -> Iterator[Browser]:
    """A browser that begins with an empty profile, and is gone afterwards."""
    binary, driver = find_programs()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield Browser(started)
    finally:
        started.quit()

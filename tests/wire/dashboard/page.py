"""The dashboard in a browser, used as by a person: looks, clicks and types."""

import json
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

WAIT_S = 60
# Browser messages about answers that the tests provoke.
_EXPECTED = ("Failed to load resource", "net::ERR_")
_HURRY = """const timeout = window.setTimeout;
window.setTimeout = (work, ms, ...args) => timeout(work, ms / 10, ...args);"""


def chromium(program, driver, folder):
    """A headless browser in English with a fresh profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(program)
    for argument in (
        *("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "no-first-run"),
        *("disable-background-networking", "lang=en", f"user-data-dir={folder}"),
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(str(driver)))


class Page:
    """One visit, light and 1280 px wide at first; waits for the elements that it looks for."""

    def __init__(self, browser, address):
        self.browser = browser
        self.address = address
        browser.get("about:blank")
        browser.get_log("browser")
        self.resize(1280)
        self.theme("light")

    def resize(self, width, height=860):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._command("Emulation.setDeviceMetricsOverride", **size)

    def theme(self, name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._command("Emulation.setEmulatedMedia", features=features)

    def open(self, view="queues", wanted="#main .panel"):
        """Opens a view in a fresh document, and waits until it has content."""
        self.browser.get("about:blank")
        self.browser.get(f"http://{self.address}/#/{view}")
        self.find(wanted)
        return self

    @contextmanager
    def hurried(self):
        """Lets timers of the documents that it opens run ten times faster, as `POLL_MS` does."""
        made = self._command("Page.addScriptToEvaluateOnNewDocument", source=_HURRY)
        try:
            yield self
        finally:
            self._command("Page.removeScriptToEvaluateOnNewDocument", **made)

    def check_console(self):
        """Asserts that the page violated no policy and raised no error."""
        noted = [entry["message"] for entry in self.browser.get_log("browser")]
        assert [each for each in noted if not any(part in each for part in _EXPECTED)] == []

    # --- looks ---

    def until(self, what, *args):
        """Waits for the first true result of `what`, and returns it."""
        return WebDriverWait(self.browser, WAIT_S, 0.05).until(lambda _: what(*args))

    def find(self, selector):
        """Waits for the first element, and returns it."""
        return self.until(lambda: next(iter(self.all(selector)), None))

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        """The texts of elements, at one instant."""
        return self.script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())",
            selector,
        )

    def rows(self, caption):
        """The rows of a table as lists of texts, at one instant."""
        return self.script(
            """for (const table of document.querySelectorAll("table"))
                 if (table.caption?.textContent === arguments[0])
                   return [...table.tBodies[0].rows].map((r) =>
                     [...r.cells].map((c) => c.innerText.trim()));
               return null;""",
            caption,
        )

    def row(self, caption, name):
        """Waits for the row of a table that begins with a name, and returns it."""
        named = lambda: [row for row in self.rows(caption) or () if row[0].startswith(name)]  # noqa: E731
        return self.until(lambda: next(iter(named()), None))

    def facts(self, names=".facts dt", values=".facts dd"):
        """The facts that a page names, at one instant."""
        return dict(zip(self.texts(names), self.texts(values), strict=True))

    def says(self, selector, text):
        """Waits until an element contains a text."""
        self.until(lambda: any(text in each for each in self.texts(selector)))

    def script(self, source, *args):
        return self.browser.execute_script(source, *args)

    # --- actions ---

    def click(self, selector):
        self.find(selector).click()

    def type(self, selector, text):
        self.find(selector).send_keys(text)

    def press(self, *keys):
        """Presses keys, wherever the focus is."""
        ActionChains(self.browser).send_keys(*keys).perform()

    def choose(self, selector, label):
        Select(self.find(selector)).select_by_visible_text(label)

    def _command(self, name, **parameters):
        return self.browser.execute_cdp_cmd(name, json.loads(json.dumps(parameters)))

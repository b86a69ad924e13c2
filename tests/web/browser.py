"""A real Chromium, headless, and a review to look at; whoever uses it is skipped where there is none."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.patience import PATIENCE_SECONDS

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


@contextmanager
def room_for_a_browser() -> Iterator[None]:
    """Lifts the soft limit of address space for what is started here: Chromium reserves terabytes and uses little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def chromium(folder: Path) -> Iterator[WebDriver]:
    """A browser of its own whose profile is in `folder`."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with room_for_a_browser():
        browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        show_as(browser)
        yield browser
    finally:
        browser.quit()


def show_as(browser: WebDriver, width: int = 1440, height: int = 960, *, dark: bool = False) -> None:
    """A screen of this size and colour scheme."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def wait(browser: WebDriver, condition) -> None:
    """Until `condition()` holds; meanwhile the page may be loaded again."""
    waiting = WebDriverWait(browser, PATIENCE_SECONDS, 0.05, [NoSuchElementException, StaleElementReferenceException])
    waiting.until(lambda _: condition())


def opened(browser: WebDriver, link: str) -> None:
    """Open the page of a review, until it is there."""
    browser.get(link)
    wait(browser, lambda: "ready" in (browser.find_element(By.TAG_NAME, "body").get_attribute("class") or ""))
    settled(browser)


def settled(browser: WebDriver) -> None:
    """Until the guards have answered all that was changed."""
    script = "return !document.body.hasAttribute('aria-busy')"
    wait(browser, lambda: browser.execute_script(script))


def text(browser: WebDriver, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).get_property("textContent")


def click(browser: WebDriver, selector: str) -> None:
    browser.find_element(By.CSS_SELECTOR, selector).click()

"""A plan of the packaged run's beginning, its page on a port, and the page's requests without a browser."""

import json
from dataclasses import dataclass, field
from importlib.resources import files

import pytest

from applier.web import PageServer, ReviewPage
from planner import CompactionPlan, plan_compaction
from tests import http_client
from tests.proxy.conftest import servers_that_end_soon

__all__ = ["servers_that_end_soon"]

MESSAGES = 67
"""How much of the run: 34 turns, failures and the user's constraints among them."""


@dataclass
class Written:
    """What the page had written."""

    plans: list[CompactionPlan] = field(default_factory=list)
    sheets: list = field(default_factory=list)

    def save(self, plan):
        self.plans.append(plan)
        return {"message": "The plan is in plan.json", "detail": ""}

    def apply(self, sheet):
        self.sheets.append(sheet)
        return {"message": "The view is in view.json", "detail": "Originals: compactor restore h1:t1"}


def review_of(plan, messages, written=None, replan=None) -> ReviewPage:
    written = written or Written()
    files = {"plan": "plan.json", "view": "view.json"}

    def by_rules(wanted):
        return plan_compaction(messages, plan.task, planner="rules", target_tokens=wanted.target_tokens, now=0)

    return ReviewPage(plan, messages, files, save=written.save, apply=written.apply, replan=replan or by_rules)


@pytest.fixture(scope="session")
def whole_run():
    return json.loads(files("applier.eval").joinpath("transcript.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def messages(whole_run):
    return whole_run["messages"][:MESSAGES]


@pytest.fixture(scope="session")
def plan(messages) -> CompactionPlan:
    return plan_compaction(messages, "Make the parser read every line.", planner="rules", target_ratio=0.2, now=0)


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def server(plan, messages, written):
    """Whose link was not used yet."""
    with PageServer(review_of(plan, messages, written)) as server:
        yield server


@pytest.fixture(scope="module")
def opened_page(plan, messages):
    """The page's own requests, with its key, and what it had written: a server takes half a second to come and go."""
    written = Written()
    with (
        PageServer(review_of(plan, messages, written)) as server,
        http_client.Client(base_url=server.link.split("/#")[0]) as client,
    ):
        key = client.post("/api/open", json={"token": server.link.split("#")[1]}).json()["key"]
        client.headers["x-compactor-key"] = key
        yield client, written


@pytest.fixture
def page(opened_page):
    """The page's own requests, with its key."""
    return opened_page[0]


@pytest.fixture
def page_wrote(opened_page):
    """What this test had the page write."""
    opened_page[1].plans.clear()
    opened_page[1].sheets.clear()
    return opened_page[1]

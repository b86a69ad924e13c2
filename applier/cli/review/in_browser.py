"""The review in a browser: gives the page what it shows, and writes what is saved and applied there."""

from __future__ import annotations

from pathlib import Path

from applier.adapters.transcripts import Transcript
from applier.cli.browser import show_page, web_pages
from applier.cli.files import write_whole
from applier.cli.screen import echo, working
from applier.cli.work import applied_text
from applier.sheet import Sheet
from applier.store.reference import history_key
from planner.plan import CompactionPlan

__all__ = ["review_in_browser"]


def review_in_browser(
    plan: CompactionPlan, read: Transcript, transcript: Path, *, plan_file: Path | None, store: str | None
) -> None:
    """Show the review of `plan` until the page is finished or Ctrl-C.

    Saving writes `plan_file` (default: beside the transcript), applying a new transcript beside the old one; both are
    named when they are written.

    Raises:
        ClickException: the extra is not installed.
        StalePlan: the plan was made for other messages.
    """
    web = web_pages()
    plan_file = plan_file or transcript.with_name(f"{transcript.stem}.plan.json")
    view_file = transcript.with_name(f"{transcript.stem}.view{transcript.suffix}")

    def save(guarded: CompactionPlan) -> object:
        write_whole(plan_file, guarded.to_json())
        echo(f"saved: {plan_file}", err=True)
        return web.Outcome(f"The plan is in {plan_file.name}")

    def apply(sheet: Sheet) -> object:
        if not sheet.changes:
            return web.Outcome("Nothing changes: nothing was written")
        write_whole(view_file, applied_text(sheet, read, view_file, store))
        removed = next(own.turn_id for own in sheet.plan.turns if own.strategy != "keep")
        reference = f"{history_key(sheet.plan.history.digest)}:{removed}"
        echo(f"applied: {view_file}; originals: compactor restore {reference}", err=True)
        sizes = f"{sheet.plan.history.tokens:,} tokens became {sheet.plan.estimated_tokens:,}"
        return web.Outcome(f"{sizes}: the view is in {view_file.name}", f"Originals: compactor restore {reference}")

    with working("checking…"):
        names = {"plan_name": plan_file.name, "view_name": view_file.name}
        review = web.Review(plan, read.messages, **names, save=save, apply=apply)
    show_page(review)

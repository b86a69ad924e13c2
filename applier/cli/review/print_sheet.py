"""Prints a review: the table first, then what stays, what is left in place, what was found, what it costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from applier.cli.review.rows import Row
from applier.cli.review.sheet import Failed, Sheet, StandIn
from applier.cli.screen import clean, one_line, shorten
from applier.view import Preview
from planner.plan import CompactionPlan, ExtractedFact, FactType, Finding, Strategy

__all__ = ["print_sheet"]

STYLES: dict[Strategy, str] = {"keep": "green", "summarize": "cyan", "reference": "yellow", "drop": "red"}
SHOWN_LINES = 4
"""Lines of a stand-in that are shown unless all are asked for."""
TASK_LINES = 3
WIDE = 110
"""From this width on a turn's words get more room than its reason."""
FOLDED_FACTS: tuple[FactType, ...] = ("error", "file_state")
"""Facts that are many and stand in the turns' own rows; only counted unless all are asked for."""
INDENT = 2


def print_sheet(console: Console, sheet: Sheet, *, whole: bool = False) -> None:
    """Print `sheet`; with `whole` every stand-in in full."""
    plan = sheet.plan
    console.print(
        clean(f"Task: {shorten(plan.task, TASK_LINES * console.width - len('Task: '))}", "bold"), "", sep="\n"
    )
    console.print(_table(sheet.rows, wide=console.width >= WIDE))
    _section(console, "Left in place of what is removed", _left(sheet.stand_ins, whole), whole)
    _section(console, "Failed approaches, kept", map(_failed, sheet.failed), whole)
    _section(console, "Facts", _facts(plan.extracted_facts, whole), whole)
    _section(console, "Findings", map(_finding, plan.findings), whole=True)
    _section(console, "Planner", _provenance(plan), whole=True)
    _section(console, "Cost", _cost(sheet.preview) if sheet.preview else (), whole=True)
    console.print("", clean(_totals(plan), "bold"), sep="\n")


def _table(rows: Sequence[Row], wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, expand=True)
    table.add_column("turn", no_wrap=True)
    table.add_column("strategy", no_wrap=True)
    for name in ("score", "before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what", ratio=3 if wide else 1, no_wrap=True, overflow="ellipsis")
    table.add_column("why", ratio=2 if wide else 1, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> Iterator[Text]:
    yield Text(row.turns)
    yield Text(row.strategy, style=STYLES[row.strategy])
    yield Text(f"{row.score:.2f}")
    yield Text(f"{row.tokens_before:,}")
    yield Text(f"{row.tokens_after:,}")
    yield clean(("✗ " if row.failed else "") + one_line(row.what))
    yield clean(one_line(row.why))


def _section(console: Console, title: str, lines: Iterable[str], whole: bool) -> None:
    """A title and indented lines; those that are too long are cut unless the `whole` is asked for."""
    shown = list(lines)
    if shown:
        console.print("", Text(title, style="bold"), sep="\n")
    for line in shown:
        text = clean(line)
        if not whole:
            text.truncate(console.width - INDENT, overflow="ellipsis")
        console.print(Padding(text, (0, 0, 0, INDENT), expand=False))


def _totals(plan: CompactionPlan) -> str:
    before, after = plan.history.tokens, plan.estimated_tokens
    share = f" ({after / before:.0%})" if before else ""
    met = "met" if after <= plan.target_tokens else "not met, see the findings"
    counts = [
        f"{count} {strategy}"
        for strategy in STYLES
        if (count := sum(decision.strategy == strategy for decision in plan.turns))
    ]
    return (
        f"{plan.history.turns} turns: {', '.join(counts)}. "
        f"{before:,} tokens → {after:,}{share}; target {plan.target_tokens:,}: {met}."
    )


def _failed(failed: Failed) -> str:
    return f"✗ {failed.turn_id} {shorten(failed.what, 28)}: {one_line(failed.how)}"


def _facts(facts: Sequence[ExtractedFact], whole: bool) -> Iterator[str]:
    for fact in facts:
        if whole or fact.type not in FOLDED_FACTS:
            quoted = f' "{one_line(fact.quote)}"' if fact.quote not in ("", fact.content) else ""
            yield f"{fact.type} ({fact.source}): {one_line(fact.content)}{quoted}"
    folded = Counter(fact.type for fact in facts if not whole and fact.type in FOLDED_FACTS)
    if folded:
        yield f"and {', '.join(f'{count} {kind}' for kind, count in folded.items())} (--all shows them)"


def _finding(finding: Finding) -> str:
    place = f"{finding.turn_id}: " if finding.turn_id else ""
    repair = f"; {one_line(finding.repair)}" if finding.repair else ""
    return f"{finding.code}: {place}{one_line(finding.problem)}{repair}"


def _provenance(plan: CompactionPlan) -> Iterator[str]:
    own = plan.provenance
    yield " ".join(part for part in (f"planner {own.planner}", own.model, own.prompts[:19]) if part)
    if own.usage.requests:
        spent = own.usage
        yield f"{spent.input_tokens:,} tokens in, {spent.output_tokens:,} out, {spent.requests} requests"
    yield from map(one_line, own.notes)


def _left(stand_ins: Sequence[StandIn], whole: bool) -> Iterator[str]:
    for item in stand_ins:
        lines = item.text.split("\n")
        shown = lines if whole or len(lines) <= SHOWN_LINES + 1 else lines[:SHOWN_LINES]
        yield from shown
        if len(lines) > len(shown):
            yield f"    ({len(lines) - len(shown)} more lines; --all shows them)"


def _cost(preview: Preview) -> Iterator[str]:
    if preview.first_changed_message is None:
        yield "nothing changes; the prompt cache stays as it is"
        return
    yield (
        f"message {preview.first_changed_message} is the first that changes: "
        f"{preview.invalidated_tokens:,} cached tokens behind it are written anew, once"
    )
    if preview.payback_calls is not None:
        yield (
            "it never pays back in cache terms"
            if math.isinf(preview.payback_calls)
            else f"it pays back after {preview.payback_calls:.1f} calls"
        )
    yield f"thinking: {preview.thinking}"

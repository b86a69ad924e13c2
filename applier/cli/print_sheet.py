"""Prints a review: the verdict first, then the brief, failures and findings, and the table of what happens to turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from applier.cli.screen import FULL_WIDTH, clean, one_line, shorten
from applier.sheet import Sheet
from applier.view import Preview
from planner.plan import CompactionPlan, ExtractedFact, Finding, Strategy, TurnDecision
from planner.prices import dollars, money

__all__ = ["finding_line", "print_sheet", "table_runs"]

STYLES: dict[Strategy, str] = {"keep": "green", "summarize": "cyan", "reference": "yellow", "drop": "red"}
TASK_LINES = 3
TASK_CHARACTERS = 500
"""Of the task more is not shown, however wide the page."""
WIDE = 110
"""From this width on a turn's words get more room than its reason."""
MOST_LINES = 12
"""Of failures, findings and constraints so many are shown unless all are asked for."""
LEAST_NAMED = 28
"""Characters of what failed, where the page is narrow."""
FEWEST_FOLDED = 3
"""Shorter runs save no row worth the detail they hide."""
INDENT = 2


def print_sheet(console: Console, sheet: Sheet, *, whole: bool = False) -> None:
    """Print `sheet`; with `whole` every stand-in, failure and fact in full."""
    plan = sheet.plan
    for line in _verdict(plan, sheet.preview):
        console.print(clean(line, "bold"))
    task = min(TASK_LINES * console.width - len("Task: "), TASK_CHARACTERS)
    console.print("", clean(f"Task: {shorten(plan.task, task)}"), sep="\n")
    _section(console, "Brief, first in the view", plan.brief.splitlines(), whole=True)
    width = max(LEAST_NAMED, console.width // 4)
    _section(console, "Failed approaches, kept", (_failed(one, width) for one in sheet.failed), whole)
    _section(console, "Findings", map(finding_line, plan.findings), whole)
    constraints = [_fact(fact) for fact in plan.extracted_facts if fact.type == "constraint"]
    _section(console, "Facts", constraints, whole, _other_facts(plan.extracted_facts, whole))
    console.print("")
    console.print(_table(sheet, console.width, fold=not whole))
    left = "\n".join(sheet.left.values()).split("\n") if whole and sheet.left else ()
    _section(console, "Left in place of what is removed", left, whole)
    _section(console, "Planner", _provenance(plan), whole=True)
    if not whole and sheet.left:
        console.print("", "--all shows each turn, what it leaves in its place, and all facts", sep="\n")


def _verdict(plan: CompactionPlan, preview: Preview | None) -> Iterator[str]:
    before, after = plan.history.tokens, plan.estimated_tokens
    share = f" ({after / before:.0%})" if before else ""
    met = "met" if after <= plan.target_tokens else "not met, see the findings"
    yield f"{before:,} tokens → {after:,}{share}; target {plan.target_tokens:,}: {met}."
    counts = Counter(decision.strategy for decision in plan.turns)
    of_each = ", ".join(f"{counts[own]} {own}" for own in STYLES if counts[own])
    yield f"{plan.history.turns:,} turns: {of_each}." if of_each else "No messages, so nothing to plan."
    if preview is not None:
        yield _cost(preview)


def _cost(preview: Preview) -> str:
    if preview.first_changed_message is None:
        return "Nothing changes; the prompt cache stays as it is."
    calls, switch = preview.payback_calls or 0.0, preview.dollars
    before, after, gone = preview.tokens_before, preview.tokens_after, preview.invalidated_tokens
    pays = "never pays back in cache terms" if math.isinf(calls) else f"pays back after {calls:.1f} calls"
    anew = f"{max(0, after - before + gone):,} tokens are written anew in place of {gone:,} cached ones, once"
    fewer = f"each call then reads {before - after:,} fewer"
    return (
        f"Changes from message {preview.first_changed_message} on: {money(switch.get('rebilled'), anew)}; "
        f"{money(switch.get('saved'), fewer)}; {pays}. Thinking: {preview.thinking}."
    )


def _table(sheet: Sheet, width: int, *, fold: bool) -> Table:
    """The table, as wide as the terminal; in a pipe as wide as its longest cells."""
    table, wide = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, expand=width < FULL_WIDTH), width >= WIDE
    for name in ("turn", "strategy", "score", "before", "after"):
        table.add_column(name, justify="left" if name in ("turn", "strategy") else "right", no_wrap=True)
    for name, share in (("what", 3), ("why", 2)):
        table.add_column(name, ratio=share if wide else 1, no_wrap=True, overflow="ellipsis")
    for run in table_runs(sheet.plan.turns, fold=fold):
        table.add_row(*_cells(run, sheet.heads))
    return table


def table_runs(turns: Sequence[TurnDecision], *, fold: bool = True) -> list[list[TurnDecision]]:
    """The turns of each row, in order: neighbours of one strategy share it, unless there are too few to `fold`."""
    groups = [list(group) for _, group in groupby(turns, key=lambda own: own.strategy)]
    rows: list[list[TurnDecision]] = []
    for group in groups:
        rows += [group] if fold and len(group) >= FEWEST_FOLDED else ([own] for own in group)
    return rows


def _cells(run: Sequence[TurnDecision], heads: Mapping[str, str]) -> Iterator[Text]:
    """Of several turns: the highest score, all tokens, and how often each thing is said."""
    first, last = run[0].turn_id, run[-1].turn_id
    failed = sum(own.failed_approach for own in run)
    yield Text(first if first == last else f"{first}-{last}")
    yield Text(run[0].strategy, style=STYLES[run[0].strategy])
    yield Text(f"{max(own.relevance_score for own in run):.2f}")
    yield Text(f"{sum(own.tokens_before for own in run):,}")
    yield Text(f"{sum(own.tokens_after for own in run):,}")
    what = heads.get(first, "") if first == last else _kinds(run, heads, failed)
    yield clean(("✗ " if failed else "") + one_line(what))
    yield clean(one_line(_counted(own.reason for own in run)))


def _kinds(run: Sequence[TurnDecision], heads: Mapping[str, str], failed: int) -> str:
    kinds = _counted(heads.get(own.turn_id, "").split(" ")[0].rstrip(":") for own in run)
    marks = f", {failed} failed" if failed else ""
    return f"{len(run)} turns{marks}: {kinds}" if kinds else f"{len(run)} turns{marks}"


def _counted(words: Iterable[str]) -> str:
    """The distinct `words`, most frequent first, each with how often it stands there where they differ."""
    counts = Counter(word for word in words if word)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(word if count == 1 else f"{count}× {word}" for word, count in counts.most_common())


def _section(console: Console, title: str, lines: Iterable[str], whole: bool, last: Iterable[str] = ()) -> None:
    """A title, indented lines, the `last` ones; unless the `whole` is asked for, the first, and what fits of each."""
    shown = list(lines)
    if not whole and len(shown) > MOST_LINES + 1:
        shown[MOST_LINES:] = [f"and {len(shown) - MOST_LINES} more (--all shows them)"]
    shown += last
    if shown:
        console.print("", Text(title, style="bold"), sep="\n")
    for line in shown:
        text = clean(line)
        if not whole:
            text.truncate(console.width - INDENT, overflow="ellipsis")
        console.print(Padding(text, (0, 0, 0, INDENT), expand=False))


def _failed(failed: Mapping[str, str], width: int) -> str:
    what = f" {shorten(failed['what'], width)}" if failed["what"] else ""
    return f"✗ {failed['turn']}{what}: {one_line(failed['how'])}"


def _other_facts(facts: Sequence[ExtractedFact], whole: bool) -> Iterator[str]:
    """Those that are no constraints of the user's stand in the brief or in the turns' own rows, and are counted."""
    others = [fact for fact in facts if fact.type != "constraint"]
    if whole:
        yield from map(_fact, others)
    elif others:
        counts = Counter(fact.type for fact in others)
        yield f"others: {', '.join(f'{count} {kind}' for kind, count in counts.items())} (--all shows them)"


def _fact(fact: ExtractedFact) -> str:
    quoted = f' "{one_line(fact.quote)}"' if fact.quote not in ("", fact.content) else ""
    return f"{fact.type} ({fact.source}): {one_line(fact.content)}{quoted}"


def finding_line(finding: Finding) -> str:
    """A finding in one line."""
    place = f"{finding.turn_id}: " if finding.turn_id else ""
    repair = f"; {one_line(finding.repair)}" if finding.repair else ""
    return f"{finding.code}: {place}{one_line(finding.problem)}{repair}"


def _provenance(plan: CompactionPlan) -> Iterator[str]:
    own = plan.provenance
    yield " ".join(part for part in (f"planner {own.planner}", own.model, own.prompts[:19]) if part)
    if own.usage.requests:
        spent = own.usage
        tokens = f"{spent.input_tokens:,} tokens in, {spent.output_tokens:,} out, {spent.requests} requests"
        yield money(dollars(own.model, spent), tokens)
    if own.filled_tokens and own.planner != "rules":
        yield f"{own.filled_tokens:,} tokens of space that was left were filled by rules"
    yield from map(one_line, own.notes)

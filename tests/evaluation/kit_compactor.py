"""This compactor behind the protocol of compaction-conformance-kit: turns and a budget of characters in, text out.

The kit compacts its own output again and again. Here a second compaction is made from the originals, as in a session:
the adapter keeps them in a store. Run as a module it prints the kit's table.
"""

import tempfile
from functools import cache
from itertools import count
from pathlib import Path

from compaction_kit.adapters import ProgressiveSummaryCompactor
from compaction_kit.benchmark import budget_benchmark_to_markdown, run_budget_benchmark
from compaction_kit.compacted import CompactedContext
from compaction_kit.compactors import ChecklistCompactor, UpdateAwareChecklistCompactor
from compaction_kit.session import Turn

from applier import preview
from applier.eval.survival import plain_text
from applier.store import open_store
from planner import plan_compaction
from planner.reading.messages import read_history

SMALLEST_RATIO, STEPS = 0.01, 6


class RulesCompactor:
    """Plans by rules; asks for as much as the budget of characters lets stand."""

    name = "relevance-rules"

    def __init__(self, store_path):
        self.store_path = store_path

    def compact(self, turns: list[Turn], round_num: int = 1, budget_chars: int | None = None) -> CompactedContext:
        store = open_store(self.store_path)
        try:
            if round_num == 1:
                messages = [{"role": turn.role, "content": turn.text} for turn in turns if turn.role != "system"]
                task = "\n".join(turn.text for turn in turns if turn.role == "system")
                store.set_state("session", [store.save_history(read_history(messages)), task])
            key, task = store.get_state("session")
            originals = tuple(map(_frozen, store.load_history(key).messages))
        finally:
            store.close()
        return CompactedContext(_fitted(originals, task, budget_chars), self.name, round_num)


def _frozen(message):
    return message["role"], message["content"]


@cache
def _fitted(messages, task, budget_chars):
    """The text of the largest view within `budget_chars`, found by halving the ratio's interval."""
    low, high = SMALLEST_RATIO, 1.0
    best = _text(messages, task, low)
    for _ in range(STEPS):
        middle = (low + high) / 2
        text = _text(messages, task, middle)
        if len(text) <= (budget_chars or len(text)):
            low, best = middle, text
        else:
            high = middle
    return best


def _text(messages, task, ratio):
    listed = [{"role": role, "content": content} for role, content in messages]
    plan = plan_compaction(listed, task, target_ratio=ratio, planner="rules")
    return plain_text(preview(plan).messages)


def _print_table():
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        payload = run_budget_benchmark(
            {
                RulesCompactor.name: lambda: RulesCompactor(Path(folder, f"{next(numbers)}.db")),
                **{kind.name: kind for kind in (UpdateAwareChecklistCompactor, ChecklistCompactor)},
                ProgressiveSummaryCompactor.name: ProgressiveSummaryCompactor,
            }
        )
    print(budget_benchmark_to_markdown(payload))
    for entry in payload["entries"]:
        print(entry["budget_fraction"], entry["compactor"], "stale:", entry["randomized"]["supersession"]["stale"])


if __name__ == "__main__":
    _print_table()

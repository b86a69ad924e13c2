"""Plans every transcript of a folder by rules at three ratios and holds each against the laws; one line a file.

``python -m tests.sweep FOLDER``: exit code 1 if any law is broken anywhere.
"""

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from applier.store import open_store
from applier.view import apply, preview
from planner import CompactionPlan, plan_compaction, read_history
from planner.placeholders import history_key
from tests.viewed import plan_of, refused, removed

RATIOS = (0.5, 0.25, 0.1)


@dataclass
class Swept:
    """Results of one transcript."""

    name: str
    tokens: int = 0
    sizes: list[str] = field(default_factory=list)
    restored: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self):
        verdict = "ok" if not self.broken else "BROKEN: " + "; ".join(self.broken)
        return (
            f"{self.name[:44]:44} {self.tokens:>8} -> {' '.join(self.sizes):26} {self.restored:>4} restored  {verdict}"
        )


def sweep_file(path, store):
    """Plan `path` at all ratios."""
    held = json.loads(path.read_text(encoding="utf-8"))
    swept = Swept(path.stem)
    for ratio in RATIOS:
        sweep(held["messages"], held["task"], ratio, store, swept)
    history = read_history(held["messages"])
    whole = preview(plan_of(history, {turn.id: "keep" for turn in history.turns}), held["messages"]).messages
    if len(whole) != len(held["messages"]) or any(a is not b for a, b in zip(whole, held["messages"], strict=False)):
        swept.broken.append("keeping everything does not give back the same objects")
    return swept


def sweep(messages, task, ratio, store, swept):
    """Check one plan of one transcript against every law; broken laws are added to `swept`."""
    plan = plan_compaction(messages, task, target_ratio=ratio, planner="rules", now=0.0)
    shown = preview(plan)
    swept.tokens = shown.tokens_before
    explained = any(finding.code == "target_unreachable" for finding in plan.findings)
    swept.sizes.append(f"{shown.tokens_after / shown.tokens_before:.3f}{'!' * explained}")
    loaded = CompactionPlan.from_json(plan.to_json())
    known = {violation.rule for violation in refused(messages)}
    found = {
        "invalid list": any(v.rule not in known for v in refused(shown.messages, before=messages)),
        "target missed": shown.tokens_after > plan.target_tokens and not explained,
        "grew": shown.tokens_after > shown.tokens_before,
        "not deterministic": plan_compaction(messages, task, target_ratio=ratio, planner="rules", now=0.0).to_json()
        != plan.to_json(),
        "JSON changes the view": json.dumps(preview(loaded, messages).messages) != json.dumps(shown.messages),
        "not restored": not restores(plan, messages, store, swept),
    }
    swept.broken += [f"{law} at {ratio}" for law, broken in found.items() if broken]


def restores(plan, messages, store, swept):
    """Return True if every turn named in the view can be restored exactly."""
    apply(plan, messages, store=store)
    history = plan.bound_analysis.history
    key = history_key(history.digest)
    for turn_id in removed(plan):
        turn = history.by_id[turn_id]
        if list(store.restore(f"{key}:{turn_id}").messages) != messages[turn.start : turn.stop]:
            return False
        swept.restored += 1
    return True


def main(folder):
    """Sweep `folder` and return the exit code."""
    broken = 0
    with tempfile.TemporaryDirectory() as kept, open_store(Path(kept) / "store.db") as store:
        for path in sorted(Path(folder).glob("*.json")):
            swept = sweep_file(path, store)
            broken += bool(swept.broken)
            print(swept, flush=True)
    print(f"{broken} files break a law" if broken else "every file keeps every law")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

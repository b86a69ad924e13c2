"""compaction-conformance-kit against this compactor: synthetic facts and rules over repeated rounds."""

import itertools

import pytest

kit = pytest.importorskip("compaction_kit.benchmark")

from tests.evaluation.kit_compactor import RulesCompactor  # noqa: E402 - needs the kit

BUDGETS = {0.10: 0.40, 0.20: 0.85, 0.30: 1.00}
"""Budget in characters, as a share of the transcript, and the survival asked of it: the kit's best built-in's."""


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    folder, numbers = tmp_path_factory.mktemp("kit"), itertools.count()
    payload = kit.run_budget_benchmark(
        {RulesCompactor.name: lambda: RulesCompactor(folder / f"{next(numbers)}.db")},
        budgets=tuple(BUDGETS),
        seeds=(1, 2),
        rounds=5,
    )
    print(kit.budget_benchmark_to_markdown(payload))
    return {entry["budget_fraction"]: entry for entry in payload["entries"]}


@pytest.mark.parametrize("budget", BUDGETS)
def test_rules_and_facts_survive_five_rounds_within_the_budget(entries, budget):
    entry = entries[budget]
    assert entry["budget_compliant"]
    assert entry["randomized"]["overall_final_survival"] >= BUDGETS[budget]


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_rule_that_was_restated_stands_with_its_last_value_only(entries, budget):
    assert entries[budget]["randomized"]["supersession"]["stale"] == 0

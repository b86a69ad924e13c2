"""`prompts`: a person can copy and change what the planner model reads."""

from planner.model.prompts import load_prompts


def test_copied_prompts_are_the_packaged_ones_until_edited(compactor, folder):
    assert compactor("prompts", "copy", "mine").code == 0
    assert load_prompts(folder / "mine").hash == load_prompts().hash
    (folder / "mine" / "system.md").write_text("Be brief. {{brief_rules}}")
    assert load_prompts(folder / "mine").hash != load_prompts().hash


def test_copy_overwrites_nothing(compactor, folder):
    (folder / "system.md").write_text("precious")
    ran = compactor("prompts", "copy", ".")
    assert ran.code == 2
    assert "exists already" in ran.err
    assert (folder / "system.md").read_text() == "precious"


def test_what_is_wrong_with_a_prompt_is_named_before_it_is_used(compactor, folder, transcript):
    (folder / "plan.md").write_text("{{task}} {{nonsense}}")
    ran = compactor("plan", transcript, "--planner", "model", "--prompts", ".")
    assert ran.code == 2
    assert "{{nonsense}}" in ran.err

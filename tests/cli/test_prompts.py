"""`prompts`: a person can read, copy, change and check what the planner model is told."""

from planner.model.prompts import PROMPTS, load_prompts


def test_list_and_show_give_what_is_used(compactor):
    listed = compactor("prompts", "list")
    assert all(name in listed.out for name in PROMPTS)
    assert load_prompts().hash in listed.out
    assert compactor("prompts", "show", "system").out.strip() == load_prompts().texts["system"]


def test_copied_prompts_are_the_packaged_ones_until_edited(compactor, folder):
    assert compactor("prompts", "copy", "mine").code == 0
    assert load_prompts(folder / "mine").hash == load_prompts().hash
    (folder / "mine" / "system.md").write_text("Be brief. {{brief_rules}}")
    assert compactor("prompts", "show", "system", "--prompts", "mine").out == "Be brief. {{brief_rules}}\n"
    assert compactor("prompts", "check", "--prompts", "mine").code == 0


def test_copy_overwrites_nothing(compactor, folder):
    (folder / "system.md").write_text("precious")
    ran = compactor("prompts", "copy", ".")
    assert ran.code == 2
    assert "is there already" in ran.err
    assert (folder / "system.md").read_text() == "precious"


def test_check_names_what_is_wrong(compactor, folder):
    (folder / "plan.md").write_text("{{task}} {{nonsense}}")
    ran = compactor("prompts", "check", "--prompts", ".")
    assert ran.code == 1
    assert "{{nonsense}}" in ran.out
    assert "{{cards}}" in ran.out


def test_unknown_prompt_is_wrong_usage(compactor):
    assert compactor("prompts", "show", "poem").code == 2

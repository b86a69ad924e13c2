"""`demo`: the whole job with nothing but the package."""


def test_demo_plans_applies_and_restores(compactor, folder):
    ran = compactor("demo")
    assert ran.code == 0
    assert "breaks no rule of the Messages API" in ran.out
    assert "removed turns came back byte-exact" in ran.out
    assert ran.err == ""
    assert not list(folder.iterdir())

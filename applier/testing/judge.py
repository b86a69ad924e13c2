"""Everything the server asks of a request before it answers: shape, the rules, the window."""

from __future__ import annotations

from applier.testing.api_request import Request, Violation
from applier.testing.call_rules import CALL_RULES
from applier.testing.prompt_cache import request_tokens
from applier.testing.shape_rules import SHAPE_RULES
from applier.testing.thinking_rules import THINKING_RULES, IssuedThinking, without_unbound_thinking

__all__ = ["judge"]


def judge(
    request: Request, window_tokens: int | None = None, issued: IssuedThinking | None = None
) -> tuple[Violation, ...]:
    """What the API would answer 400 to, the first one first; nothing for a request it takes.

    `issued` knows the server's own answers; without, rule 10 is checked by form alone.
    """
    if problem := request.is_well_formed():
        return (Violation(0, problem),)
    broken = [violation for rule in (*SHAPE_RULES, *CALL_RULES, *THINKING_RULES) for violation in rule(request)]
    broken += issued.check(request) if issued else ()
    if not broken and window_tokens is not None:
        tokens = request_tokens(without_unbound_thinking(request))
        if tokens > window_tokens:
            return (Violation(22, f"prompt is too long: {tokens} tokens > {window_tokens} maximum"),)
    return tuple(broken)

"""A Messages API to test agents against: `MessagesServer` on a local port, and its rules on their own.

Without a server, `judge` checks a single request, and `judge_edit` an edited request against the one before the edit.
The API has these rules:

1. every call is answered in the next message · 2. every result was called · 3. results lead their message · 4. results
of parallel calls share a message · 5. one result per call · 6. call ids are unique · 7. ids are plain · 8. inputs are
objects · 9. server tools' results follow their calls · 10. thinking of the latest answer is whole · 11. signatures
match their text · 12. manual thinking leads the last calls · 13. no thinking while it is off · 14. thinking is bound to
its conversation · 15. no prefill · 16. no trailing space in a prefill · 17. no blank text · 18. at most four cache
marks, well placed · 19. system messages only where allowed · 20. few and small images, 32 MB · 21. valid Unicode · 22.
the window · 23. compaction blocks lead · 24. the list begins with the user · 25. no sampling, document of the assistant
or citation of the user from API version 2026-10-21 on. Rule 0 is everything else that a body must be.

Shares no code with the planner, so that it can judge the planner's output.
"""

from applier.testing.api_forms import Answer, Failure, Refusal, Request, overloaded, rate_limited, refuse, say, use
from applier.testing.judge import judge, judge_edit
from applier.testing.messages_server import Exchange, MessagesServer
from applier.testing.prompt_cache import CACHE_READ_PRICES, PromptCache, PromptUsage

__all__ = [
    "CACHE_READ_PRICES",
    "Answer",
    "Exchange",
    "Failure",
    "MessagesServer",
    "PromptCache",
    "PromptUsage",
    "Refusal",
    "Request",
    "judge",
    "judge_edit",
    "overloaded",
    "rate_limited",
    "refuse",
    "say",
    "use",
]

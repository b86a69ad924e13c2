"""OpenAI chat messages to Anthropic messages and back, exactly."""

from applier.adapters.transcripts.openai_chat.convert import from_openai, strip_openai, to_openai
from applier.adapters.transcripts.openai_chat.shape import is_chat

__all__ = ["from_openai", "is_chat", "strip_openai", "to_openai"]

"""Attachment lines of a session log as the words the model was given for them.

The log holds the attachment, not those words; what is text in it is put back as a reminder of the host.
"""

from __future__ import annotations

from typing import Any

__all__ = ["attached"]

_TEXT_FIELDS = ("content", "snippet", "text", "stdout")
_NAME_FIELDS = ("filename", "path", "hookName")


def attached(attachment: dict[str, Any]) -> tuple[str | list[dict[str, Any]], bool] | None:
    """The words of `attachment`, and whether the host wrote them; None if it holds none."""
    if attachment.get("type") == "queued_command":
        prompt = attachment.get("prompt")
        host = attachment.get("commandMode") == "task-notification" or bool(attachment.get("isMeta"))
        return (prompt, host) if isinstance(prompt, str | list) and prompt else None
    text = next((text for field in _TEXT_FIELDS if (text := _text(attachment.get(field)))), "")
    if not text:
        return None
    named = next((str(attachment[field]) for field in _NAME_FIELDS if attachment.get(field)), "")
    head = f"{attachment.get('type')} {named}".rstrip()
    return f"<system-reminder>\n{head}:\n{text}\n</system-reminder>", True


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip("\n") if value.strip() else ""
    if isinstance(value, list):
        return "\n".join(item for item in value if isinstance(item, str))
    if isinstance(value, dict):
        file = value.get("file", value)
        return _text(file.get("content")) if isinstance(file, dict) else ""
    return ""

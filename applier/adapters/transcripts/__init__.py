"""Transcripts of other tools and formats: read as Anthropic messages, written back as what they were.

Reads what is there. Repairs only what a log's form forces, and reports the rest as warnings.
"""

from applier.adapters.transcripts.formats import CLIENTS, FORMATS, read_transcript, write_transcript
from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from applier.adapters.transcripts.transcript import Client, Format, Transcript

__all__ = [
    "CLIENTS",
    "FORMATS",
    "Client",
    "Format",
    "Transcript",
    "from_openai",
    "read_transcript",
    "strip_openai",
    "to_openai",
    "write_transcript",
]

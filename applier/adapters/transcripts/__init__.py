"""Transcripts of other tools and formats: read as Anthropic messages, written back as what they were.

Reads what is there. Repairs only what a log's form forces, and reports the rest as warnings.
"""

from applier.adapters.transcripts.formats import read_transcript, write_transcript
from applier.adapters.transcripts.openai_chat import from_openai, strip_openai, to_openai
from applier.adapters.transcripts.session_log import client_file, client_finds, resume_command, working_folder
from applier.adapters.transcripts.transcript import Format, Transcript

__all__ = [
    "Format",
    "Transcript",
    "client_file",
    "client_finds",
    "from_openai",
    "read_transcript",
    "resume_command",
    "strip_openai",
    "to_openai",
    "working_folder",
    "write_transcript",
]

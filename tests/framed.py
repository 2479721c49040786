"""Messages to the process that writes a record, as they come through its pipe."""

from __future__ import annotations

import io

from drift.parent import Parent, head_of
from drift.records.messages import Message, encode
from drift.records.process import write_record
from drift.records.writer import RecordWriter


def frame(message: Message) -> bytes:
    body = encode(message)
    return head_of(body) + body


def written(pipe: bytes) -> RecordWriter | None:
    """Write a record of all that came through the pipe until it ended."""
    return write_record(Parent(-1, None, stream=io.BytesIO(pipe)))

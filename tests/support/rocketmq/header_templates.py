"""JSON headers of sends, learned by a connection and recognised."""

from __future__ import annotations

from gateway.protocols.rocketmq.headers import read_json
from gateway.protocols.rocketmq.template_cache import TemplateCache, known
from support.rocketmq import frames as rocketmq


def header_of(opaque: int, **fields: object) -> bytes:
    frame = rocketmq.send(opaque=opaque, body=b"", **fields)  # type: ignore[arg-type]
    return frame[8:]


def learned(*texts: bytes) -> TemplateCache:
    """By the first connection of all."""
    known.clear()
    return learned_after_others(*texts)


def learned_after_others(*texts: bytes) -> TemplateCache:
    templates = TemplateCache()
    for text in texts:
        templates.learn(text, read_json(text))
    return templates


def match(templates: TemplateCache, text: bytes) -> tuple[object, ...] | None:
    """(opaque, topic, group, flag, batch) or None; with other bytes around it, as in a read."""
    data = b'"before"' + text + b'"after"'
    header = templates.match(data, 8, 8 + len(text))
    return None if header is None else (templates.opaque, header.topic, header.group, header.flag, header.batch)


def parsed(text: bytes) -> tuple[object, ...]:
    header = read_json(text)
    return header.opaque, header.topic, header.group, header.flag, header.batch

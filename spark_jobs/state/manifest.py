"""The manifest of a day's state: one JSON file with the day's inputs and the name of the data folder in force."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

STATE_FORMAT: Final = 2  # 1: until 0.2, whole rates of five quota rules


@dataclass(frozen=True, slots=True)
class Manifest:
    """The inputs of a day. `data` names the folder beside it."""

    date: str
    data: str
    code: str
    fingerprint: str  # hash of the parameters its rows were made with (`Parameters.fingerprint`), for people alone
    rows: int
    corrupt: int
    stray: int  # lines of another day
    duplicates: int
    missing_lines: int  # gaps in the sequence numbers
    observed_seconds: int
    zone: str = "UTC"  # the day's time zone
    start: int = 0  # epoch seconds, inclusive
    end: int = 0  # epoch seconds, exclusive
    observed_hours: list[int] = field(default_factory=list)  # observed seconds in each local hour of the day
    gateways: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> seconds, first, last, boots, lines
    missing_gateways: list[str] = field(default_factory=list)  # gateways expected and not there (--allow-partial)
    exclusions: list[Any] = field(default_factory=list)
    inputs: list[dict[str, Any]] = field(default_factory=list)  # path, bytes, rows, corrupt, sha256 or checksum
    fleet: dict[str, Any] = field(default_factory=dict)  # dimension -> k, realised_ppm, refused_by_k, offered, topics
    format: int = STATE_FORMAT

    def has_gateway(self, gateway: str) -> bool:
        """Whether the gateway's log was there, and not for too few seconds."""
        return gateway in self.gateways and gateway not in self.missing_gateways

    def dump(self) -> bytes:
        """Canonical JSON: equal manifests are equal bytes."""
        return json.dumps(asdict(self), sort_keys=True, indent=1).encode() + b"\n"

    @staticmethod
    def load(data: bytes) -> Manifest:
        """Read a manifest. Raises ValueError, with the way out."""
        try:
            found = json.loads(data)
            if found.get("format") != STATE_FORMAT:
                raise ValueError(f"format {found.get('format')}, this program reads {STATE_FORMAT}; compute the day again from its log")
            return Manifest(**found)
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{error}; compute the day again or remove its folder") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"no JSON ({error}); compute the day again or remove its folder") from error

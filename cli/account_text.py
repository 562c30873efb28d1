"""A topic's account (`admin/views/topic_account.py`) in a sentence, with the page's words: received, passed, waiting, refused."""

from __future__ import annotations

from typing import Any, Final

from common import figures

JSONObject = dict[str, Any]
BECAUSE: Final = {  # why nothing is refused; the same sentences as admin/dashboard/messages/en.js
    "no_confirms": "nothing is refused, as the publisher uses no confirms and cannot be told: they wait in memory",
    "one_way": "nothing is refused, as one-way sends get no answer: they wait in memory",
    "delay": "nothing is refused, as their turn comes in time",
    "block": "nothing is refused: the connection is not read meanwhile",
    "spool": "nothing is refused: they wait on the gateway's disk",
    "drop": "nothing is refused: they wait for another limit, and the rule drops what is over its own",
    "close": "nothing is refused: they wait for another limit, and the rule closes whose messages are over its own",
    "consume": "deliveries are never refused",
    "requeue": "what is given back is never refused",
}
_GOES_ON: Final = "stopped in good order, the gateway first sends on what waits; killed, or without its broker, it"
_TOLD: Final = f"{_GOES_ON} gives that up; none of it was confirmed"
_SILENT: Final = f"{_GOES_ON} loses that; without confirms the publisher does not learn of it"
FATE: Final = {  # of what waits, when the gateway ends; the page's sentences
    "no_confirms": _SILENT,
    "one_way": _SILENT,
    "delay": _TOLD,
    "spool": f"{_TOLD}; while the disk is full, the publisher is not read",
}


def fate(item: JSONObject) -> str | None:
    """What becomes of what waits when the gateway ends; None: nothing waits here."""
    return FATE.get(str((item.get("account") or {}).get("unrefused_because")))


def account_text(item: JSONObject) -> str:
    """`3,900 waiting, the oldest has waited 1min 5s, a new one will wait 2min 10s; nothing is refused, …`; "" of a topic within its limit.

    `item`: of `GET /v1/topics`; of a gateway that is older there is no account in it.
    """
    account = item.get("account") or {}
    state = account.get("state")
    if state == "refused":
        settled = item["refused_per_second"] + item.get("forwarded_per_second", 0.0)  # what has waited is refused when nothing comes, too
        share = figures.percent(item["refused_per_second"] / max(item["received_per_second"], settled, 1e-9))
        return f"{share} refused"
    if state == "would_refuse":
        share = figures.percent(account.get("would_refuse_per_second", 0) / max(item["received_per_second"], 1e-9))
        return f"its limit is only tried (mode shadow), and all passes; it would refuse {share}"
    if state != "waiting":
        return ""
    first, last = account.get("first_waited_seconds"), account.get("last_waits_seconds")
    text = f"{item['waiting']:,} waiting{f', the oldest has waited {figures.duration(first)}' if first else ''}"
    text += f", a new one will wait {'without end' if last is None else figures.duration(round(last))}"
    because = BECAUSE.get(str(account.get("unrefused_because")))
    return f"{text}; {because}" if because else text


def culprit(item: JSONObject) -> str | None:
    """`10.1.0.9 (billing, group night) 67 %`: who has most of what is refused, or else of what waits; None: nobody has."""
    account = item.get("account") or {}
    if not account.get("client"):
        return None
    known = ", ".join(filter(None, [account.get("user"), account.get("group") and f"group {account['group']}"]))
    return f"{account['client']}{f' ({known})' if known else ''} {figures.percent(account['client_share'])}"

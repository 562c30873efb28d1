"""Weighted max-min: how much each of many shares may take in one window, found without looking at all of them.

Pour what there is into vessels as wide as their weights, all connected. The water stands equally high in all of them, except in those that
are full: a share that asks for little gets it all. That is weighted max-min: no share could get more without taking from one that has less
for its weight. Finding the height means sorting all shares by demand over weight, once per window: with 100,000 topics 100 ms, which is the
whole window.

So no share is looked at twice. While a window lasts, each share that is used notes what it has taken in one of `HEIGHTS` sums by the size
of taken / weight (a power of two each). Once something of it was refused it is **hungry** instead: it wants more than it got, and how much
does not matter. The next window's level follows from those sums: HEIGHTS steps, however many topics there are. A share notes its part at
its first use in a window; those that are not used cost nothing.

Where one message is more than a window's share (a cap of 10/s among 20 topics) a share cannot be had in whole messages. So levels add up:
`raised` is the sum of all levels, and each share has its own mark, up to which it has used it. The difference is its credit. A hungry share
carries it over; one message that was more than there was leaves a debt; a share that asks now and then saves up to two messages. The credit
that hungry shares carry over was promised already, so it is subtracted from what the next window has to give (`owed`).

Small messages of a topic would use up each window's credit before a large one of it asks, and the bucket would never hold what that costs.
So for one that has waited as long as it was told its share saves: others leave credit to it until it has passed, in turns (`Share.saves`).

While no share is refused there are none to keep (`free`). But a flood need not last: each gust of one would find no shares. So for
WARY_WINDOWS windows after a refusal shares go on, each as large as all that there is. Windows in which nobody asks do not count, unless
they are so many that nobody can be waiting any more (`idle`).

The level errs downwards by less than the share of one power of two, and only among the shares that were satisfied at about that height.
What it leaves is in the bucket in the next window, and is given then.

Integers: amounts are nanoseconds of the cap's rate (a message of a cap of 1,000/s is 1,000,000), weights are thousandths.
"""

from __future__ import annotations

from typing import Final

from limiter.fair_share.turns import is_turn_of, turns_until

HEIGHTS: Final = 64  # powers of two of nanoseconds: up to 292 years of the rate
ONE: Final = 1000  # thousandths; a weight of 1
MAX_WEIGHT: Final = 1000 * ONE  # thousandths; the heaviest weight
MAX_SAVED_MESSAGES: Final = 2  # messages; what a share may save up where a window gives it less; a guess: enough for two that come together
SAVING_NS: Final = 300_000_000  # ns; for so long a share goes on to save for one that does not ask; what is held asks every 100 ms
WARY_WINDOWS: Final = 10  # windows; how long shares go on after a refusal. By then a cap that refuses nobody holds its burst again


class Share:
    """One topic's part in a cap: what it may take in this window and has taken. Written to by its `Tier` alone."""

    __slots__ = (
        "era",
        "gone",
        "height",
        "hungry",
        "mark",
        "protected",
        "saving",
        "saving_at",
        "seen",
        "spent",
        "taken",
        "text",
        "tier",
        "turns_until",
        "wanted",
        "weight",
        "window",
    )

    def __init__(self, tier: Tier, text: str, weight: int, *, protected: bool) -> None:
        self.tier = tier
        self.text = text  # the topic; "" for all that found no room
        self.weight = weight  # thousandths; in this window
        self.wanted = weight  # from its first use in a window on
        self.protected = protected
        self.gone = False  # forgotten: a key that has it must ask for another
        self.seen = 0  # monotonic ns of its first use in the last window in which it was used
        self.window = -1  # in which the following was true
        self.era = -1
        self.taken = 0
        self.height = 0  # which sum `taken` is in
        self.hungry = False
        self.mark = 0  # of the tier's `raised`, up to where this share is used
        self.saving = 0  # what the dearest request costs that has waited as long as it was told; 0: there is none
        self.saving_at = 0  # monotonic ns, when that one asked last
        self.spent = 0  # what was taken in all
        self.turns_until = 0  # of `spent`: by then others have got as much as those that it has saved for

    def save(self, cost: int, now: int) -> None:
        """One of `cost` that has waited as long as it was told is refused."""
        if cost >= self.saving or not self.is_waited_for(now):
            self.saving = cost
            self.saving_at = now

    def is_waited_for(self, now: int) -> bool:
        """Whether that one has asked lately."""
        return 0 <= now - self.saving_at <= SAVING_NS

    def saves(self, now: int) -> bool:
        """Whether others of the topic leave credit to the one that waits."""
        return self.is_waited_for(now) and is_turn_of(self.saving, self.spent, self.turns_until)

    def end_saving(self, cost: int) -> None:
        """One of `cost`, taken already, was as dear as that which it saved for."""
        self.turns_until = turns_until(cost, self.spent, self.turns_until)
        self.saving = 0

    def __repr__(self) -> str:
        state = "hungry" if self.hungry else "satisfied"
        kind = " protected" if self.protected else ""
        return f"<Share {state}{kind} {self.text!r} weight={self.weight / ONE:g} taken={self.taken} ns>"


class Tier:
    """All shares that are served together: the protected ones, or the rest. The caller says when a window begins and what it gives."""

    __slots__ = (
        "_amounts", "_lightest", "_wary", "_weights", "active", "era", "free", "hungry", "level", "owed", "raised", "steps", "window",
    )  # fmt: skip

    def __init__(self) -> None:
        self.window = 0
        self.free = True  # in this window no share is kept from anything
        self.era = 0  # how often it was, or was quiet before; credits and debts are of one era
        self.level = 0  # of this window: what a weight of 1 may take
        self.raised = 0  # all levels so far
        self.active = 0  # shares used in this window
        self.hungry = 0  # weight of those that were refused something
        self.owed = 0  # their credits
        self.steps = 0  # taken to find levels: what tests count
        self._amounts = [0] * HEIGHTS  # taken by satisfied shares, by height
        self._weights = [0] * HEIGHTS  # their weights
        self._lightest = MAX_WEIGHT  # weight of those used in this window, or in the last one in which any was
        self._wary = 0  # windows in which shares go on, though none is refused

    def begin(self, amount: int, *, some: bool, quiet: bool, idle: bool) -> None:
        """A window begins that has `amount` to give. `some`: the bucket holds anything at all. `quiet`: no share was used in the one
        before, `idle`: nor for so long that nobody waits any more.

        Who waits as told asks now and then, so a quiet window between says nothing of who wants how much: shares go on, without debts and
        credits.
        """
        self.window += 1
        self.free = idle or (self.hungry == 0 and self._wary == 0)
        if quiet and not self.free:
            self.era += 1
            self.owed = 0
        if self.free:
            self.era += 1
            self.level = 0
            self._wary = 0
        else:
            if self.hungry > 0:
                self._wary = WARY_WINDOWS
                self.level = self._level_of(amount - self.owed)
            else:
                self._wary -= 1
                self.level = amount * ONE // self._lightest  # no share has more than there is now; what comes in is for others
            if self.level <= 0:
                self.level = 1 if some else 0  # never nothing while there is something: who waited for this window must get one
            self.raised += self.level
        if self.active:
            self._amounts = [0] * HEIGHTS
            self._weights = [0] * HEIGHTS
        self.active = 0
        self.hungry = 0
        self.owed = 0

    def _level_of(self, amount: int) -> int:
        weight = self.hungry
        for each in self._weights:
            weight += each
        for height in range(HEIGHTS):
            self.steps += 1
            width = self._weights[height]
            if width == 0:
                continue
            full = self._amounts[height]
            if full * ONE + ((weight - width) << height) > amount * ONE:  # the level is not as high as all of these are full
                break
            amount -= full
            weight -= width
        return amount * ONE // weight

    def count_allowed(self, share: Share, count: int, cost: int, now: int) -> int:
        """How many of `count` requests of `cost` the share has room for. One that costs more than a window's passes on a whole one."""
        if share.window != self.window:
            self._note(share, cost, now)
        if self.free:
            return count
        need = max(1, cost * ONE // share.weight)
        credit = self.raised - share.mark
        if 0 < share.saving <= cost:
            share.saving_at = now
        elif share.saving > 0 and share.saves(now):
            credit -= share.saving * ONE // share.weight
        least = min(need, self.level)
        if credit <= 0 or credit < least:
            return 0
        return min(count, 1 + (credit - least) // need)

    def windows_to_wait(self, share: Share, cost: int, now: int) -> int:
        """The end of which window lets one of `cost` pass: 0 none, 1 this one's, 2 the next one's; true if no other share asks meanwhile.

        A share without debts gets a window's worth in any window; after one without a request none has debts.
        """
        if self.count_allowed(share, 1, cost, now) > 0:
            return 0
        return 1 if self.raised >= share.mark else 2

    def take(self, share: Share, cost: int) -> None:
        share.taken += cost
        share.spent += cost
        if not self.free:
            share.mark += max(1, cost * ONE // share.weight)
        if share.hungry:
            if not self.free:
                self.owed -= cost
            return
        fill = share.taken * ONE // share.weight
        height = share.height
        if height == 0 or fill >> height - 1 != 1:  # else it is the same; `bit_length` is a call of Python's
            height = min(HEIGHTS - 1, fill.bit_length())
        self._amounts[share.height] -= share.taken - cost
        self._amounts[height] += share.taken
        if height != share.height:
            self._weights[share.height] -= share.weight
            self._weights[height] += share.weight
            share.height = height

    def refuse(self, share: Share) -> None:
        """Something of this share's was refused in this window."""
        if share.hungry:
            return
        share.hungry = True
        self._amounts[share.height] -= share.taken
        self._weights[share.height] -= share.weight
        self.hungry += share.weight
        if not self.free:
            self.owed += (self.raised - share.mark) * share.weight // ONE

    def _note(self, share: Share, cost: int, now: int) -> None:
        """The share's first use in this window: its credit is the window's and what it carries over, at most that and one `cost`."""
        if not share.is_waited_for(now):
            share.saving = 0
        need = max(cost, share.saving) * ONE // share.wanted
        if share.era != self.era:
            share.era = self.era
            share.mark = self.raised - self.level
        elif share.window == self.window - 1 and share.hungry:
            share.mark = max(share.mark, self.raised - 2 * self.level - need)
        else:
            share.mark = max(share.mark, self.raised - max(self.level, MAX_SAVED_MESSAGES * need))
        share.window = self.window
        share.seen = now
        share.weight = share.wanted
        share.taken = 0
        share.height = 0
        share.hungry = False
        self._lightest = share.weight if self.active == 0 else min(self._lightest, share.weight)
        self.active += 1
        self._weights[0] += share.weight

    def __repr__(self) -> str:
        state = "free" if self.free else f"level={self.level} ns"
        return f"<Tier {state} active={self.active} hungry={self.hungry / ONE:g}>"

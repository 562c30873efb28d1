"""The bucket in Redis: one Lua script, one key per bucket, one call per bucket and slice.

The naive way is a counter per second (INCR, EXPIRE): it lets twice the limit through around each full second, and knows no burst. The next
is to read the bucket, think, and write it back: two gateways that do so at once both spend the same tokens. A script is one step for
everybody else, so nothing is spent twice and nothing waits for a lock.

It does what `limiter.leases.owner.LeaseOwner` does with a `TokenBucket`, and grants the same (a test compares them). What it keeps is a
hash: the level of messages and bytes in whole tokens (`m`, `b`), the part of a token on the way (`mr`, `br`), when that was true (`t`,
Redis' own clock in microseconds: the gateways' do not matter), the rates it was true under (`r`), and who lately got less than it wanted
(`s:NAME`).

**Exact in doubles.** Redis' Lua has no integers, only doubles, which count exactly up to 2^53. A rate is `amount` tokens per `per`
microseconds; elapsed time is split into whole periods and a rest, so that the largest product is amount * per. `whole_rate` sees to it that
this fits: it does for all rates people write, and the others (999,999,999,999,989/s) are replaced by the nearest that fits, less than one
in 10^9 away. What is left of a token is carried, never dropped, so nothing drifts. Numbers are stored with `%.0f`: Lua's own way of writing
them keeps 14 digits.

**What a call does**: refill; another rate or burst than last time keeps the fill in proportion, as the local bucket does; take back what is
given back (a wish below 0); grant of what is wished as much as there is, of a scarce bucket an equal part to each that was short lately.
The key expires when the bucket would be full, for a full bucket is what a missing key means.

Unless it is missing because Redis has lost it (restarted, FLUSHALL, evicted). So a gateway sends the level of its last ask along (`begin`),
and a missing bucket begins with that: a restart of Redis gives no fresh burst to a bucket in use.

**A limit that warms up** (`algorithms.warm_up`) has one argument more, the time in which it does, and in its hash how much of that it has
rested, in tokens (`mc`, `bc`). Prices are taken in doubles, so that of a million tokens a few go missing. The level that is answered, and
sent along as `begin`, is level and rest together, as packed buckets have it.

**Clock.** A Redis clock that steps back by a second or less stands still, by more: time counts from there; one that steps forward fills
buckets, at most to their burst. Time passed in (`now`) is for tests. Scripts that ask for the time are replicated by what they wrote, not
by their text: that is how Redis 5 and later, and Valkey, do it.

**Places** of limits on requests in flight are kept by a script of their own, which does what `limiter.leases.lent_places` does: a hash says
of each member what it needs, what it holds and when it said so. One that has said nothing for SILENT_NS holds nothing any more.

A further script counts the gateways of the fleet: those that have shown themselves within SEEN_S. With a secret of the fleet another one
does that, which keeps proofs beside the names (`presence.py`); gateways without a secret count the same names. Where somebody has put more
proofs there than are read, it looks for those of members that are known, too. A short one, asked with each round of slices, tells whether
their number is another, so that one that joins or leaves is counted within a lease's time. A further one keeps what
each tells the others of its traffic, in a hash with a field for each, and forgets one that has told nothing for KEPT_S or has left.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from limiter.algorithms.warm_up import DEFAULT_OVER_NS
from limiter.leases.lent_places import LEARN_NS, ON_CREDIT, SILENT_NS, TURN_NS
from limiter.leases.owner import SHORT_NS
from limiter.leases.sharing import FLEET_ROOM_NS, owner_limit

if TYPE_CHECKING:
    from limiter.limits import Limit, Rate

EXACT: Final = 1 << 53  # doubles count exactly up to here
VERSION: Final = "v1"  # of the hash's contents, in the key: versions of sluice that read them differently share no key
SEEN_S: Final = 5  # seconds; a gateway that has not shown itself for so long does not count; each does every second; a guess
KEPT_S: Final = 600  # seconds; so long a gateway is known that has not left and tells nothing: time for its operator to look; a guess
MOST_PROOFS: Final = 4096  # proofs; that each gateway reads once a second, the newest; far more than a fleet has (a guess)
MAX_PROOF_BYTES: Final = 256  # of a proof that is read; names of members are short
MOST_READ: Final = 256  # gateways; whose figures one reads: 50 kB a second while somebody looks; a guess
MAX_FIGURES_BYTES: Final = 4096  # of what one tells: its name in escapes, and some 200 bytes; longer is not read
MAX_KEY_MS: Final = 366 * 86_400_000  # ms; a key's life, however slowly its bucket fills: Redis refuses times without end

NOW: Final = """\
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
"""  # begins each script

SCRIPT: Final = (
    NOW
    + """\
local key = KEYS[1]
local me = 's:' .. ARGV[12]
local known, others, dead = {}, 0, {}
local all = redis.call('HGETALL', key)
for at = 1, #all, 2 do
  local name, value = all[at], all[at + 1]
  if string.sub(name, 1, 2) ~= 's:' then
    known[name] = value
  elseif name ~= me then
    local since = now - tonumber(value)
    if since > -1000000 and since < @short@ then others = others + 1 else dead[#dead + 1] = name end
  end
end
local wish_m, wish_b = tonumber(ARGV[8]), tonumber(ARGV[9])
local clock = now
local elapsed = now - tonumber(known.t or now)
if elapsed < 0 then
  if elapsed >= -1000000 then now = tonumber(known.t) end
  elapsed = 0
end
local over = tonumber(ARGV[13] or 0)
local rates = table.concat(ARGV, ' ', 2, 7)
if over > 0 then rates = rates .. ' ' .. ARGV[13] end
local before = {}
if known.r and known.r ~= rates then
  for word in string.gmatch(known.r, '%S+') do before[#before + 1] = tonumber(word) end
end

local function whole(number) return string.format('%.0f', number) end

local function refill(level, rest, amount, per, most)
  if elapsed / per * amount > 2 * (most - level) + 2 then return most, 0 end
  local periods = math.floor(elapsed / per)
  local left = (elapsed - periods * per) * amount + rest
  level = level + periods * amount + math.floor(left / per)
  if level >= most then return most, 0 end
  return level, math.fmod(left, per)
end

local function paid(cold, half) return cold <= half and cold or cold + (cold - half) * (cold - half) / half end

local function affordable(level, cold, half, most)
  local above = cold - half
  local found = level
  if above > 0 then
    found = level - above * above / half
    if found < above then
      local slope = 1 + 2 * above / half
      found = (slope - math.sqrt(slope * slope - 4 * level / half)) * half / 2
    end
  end
  if found < 1 then return level >= most and 1 or 0 end
  return math.floor(found + 1e-6)
end

local full_in = 0
local function dimension(at, level, rest, cold, wish, begin)
  local amount, per, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if amount == 0 then return 0, 0, 0, 0 end
  local coldest = over / per * amount
  cold = tonumber(cold or (level and coldest * math.max(0, tonumber(level)) / most))
  if not level then
    begin = begin or most + coldest
    cold = math.max(0, math.min(coldest, begin))
    level, rest = math.min(most, begin - cold), 0
  elseif #before == 0 then
    local spare = elapsed / per * amount - (most - tonumber(level)) + tonumber(rest) / per
    cold = math.min(coldest, math.max(0, cold) + math.max(0, spare))
    level, rest = refill(tonumber(level), tonumber(rest), amount, per, most)
  elseif before[at - 1] == 0 then
    level, rest = most, 0
    cold = coldest
  else
    if (before[7] or 0) > 0 then cold = math.min(coldest, cold / (before[7] / before[at] * before[at - 1]) * coldest) end
    local old_per, old = before[at], before[at + 1]
    level, rest = refill(tonumber(level), tonumber(rest), before[at - 1], old_per, old)
    local product = level * most
    level = math.floor(product / old)
    local part = (product - level * old + rest / old_per * most) / old
    level = level + math.floor(part)
    rest = math.min(per - 1, math.floor((part - math.floor(part)) * per))
  end
  cold = math.min(cold, coldest)
  local half = coldest / 2
  local function charge(tokens)
    if over == 0 then
      level = level - tokens
      return
    end
    local after = math.min(coldest, cold - tokens)
    local left = level + rest / per - paid(cold, half) + paid(after, half)
    cold, level = after, math.floor(left)
    rest = math.min(per - 1, math.floor((left - level) * per + 0.5))
  end
  if wish < 0 then charge(wish) end
  if level >= most then level, rest = most, 0 end
  local granted = 0
  if wish > 0 then
    local there = over == 0 and level or affordable(level + rest / per, cold, half, most)
    granted = math.min(wish, math.max(math.min(1, there), math.floor(there / (1 + others))))
    charge(granted)
  end
  full_in = math.max(full_in, (most - level + coldest - cold) / amount * per)
  return granted, level, rest, cold
end

local m, m_level, m_rest, m_cold = dimension(2, known.m, known.mr, known.mc, wish_m, tonumber(ARGV[10]))
local b, b_level, b_rest, b_cold = dimension(5, known.b, known.br, known.bc, wish_b, tonumber(ARGV[11]))
redis.call('HSET', key, 't', whole(now), 'r', rates, 'm', whole(m_level), 'mr', whole(m_rest), 'b', whole(b_level), 'br', whole(b_rest))
if over > 0 then
  redis.call('HSET', key, 'mc', string.format('%.6f', m_cold), 'bc', string.format('%.6f', b_cold))
  m_level, b_level = m_level + math.floor(m_cold), b_level + math.floor(b_cold)
elseif known.mc then
  dead[#dead + 1] = 'mc'
  dead[#dead + 1] = 'bc'
end
if m < wish_m or b < wish_b then redis.call('HSET', key, me, whole(clock)) else dead[#dead + 1] = me end
if #dead > 0 then redis.call('HDEL', key, unpack(dead)) end
redis.call('PEXPIRE', key, whole(math.min(math.ceil(full_in / 1000) + 1000, @longest@)))
return {m, b, m_level, b_level}
""".replace("@longest@", str(MAX_KEY_MS)).replace("@short@", str(SHORT_NS // 1000))
)

PLACES: Final = (
    NOW
    + """\
local key, me, most, needed, held = KEYS[1], 'm:' .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local holders, names, dead, known, learns = {}, {}, {}, false, 0
local all = redis.call('HGETALL', key)
for at = 1, #all, 2 do
  local need, has, seen = string.match(all[at + 1], '^(%d+) (%d+) (%d+)$')
  if all[at] == 'learns' then
    learns = tonumber(all[at + 1]) or 0
  elseif all[at] == me then
    known = seen and math.abs(now - tonumber(seen)) <= @silent@
  elseif not seen or math.abs(now - tonumber(seen)) > @silent@ then
    dead[#dead + 1] = all[at]
  else
    holders[all[at]] = {tonumber(need), tonumber(has)}
    names[#names + 1] = all[at]
  end
end
local part = 0
if needed <= 0 then
  dead[#dead + 1] = me
else
  if not known and held > @credit@ then
    learns = now + @learn@
    redis.call('HSET', key, 'learns', string.format('%.0f', learns))
  end
  needed = math.min(needed, most)
  local others, taken = 0, 0
  for _, holder in pairs(holders) do
    others = others + holder[2]
    taken = taken + math.max(holder[1], holder[2])
  end
  holders[me] = {needed, held}
  names[#names + 1] = me
  table.sort(names)
  local turn, place = math.floor(now / @turn@), {}
  for at, name in ipairs(names) do place[name] = (at - 1 + turn) % #names end
  table.sort(names, function(one, other)
    local a, b = holders[one][1], holders[other][1]
    if a ~= b and most >= #names then return a < b end
    return place[one] < place[other]
  end)
  local left = most
  for at, name in ipairs(names) do
    part = math.min(holders[name][1], math.floor(left / (#names - at + 1)))
    if name == me then break end
    left = left - part
  end
  part = part + math.floor(math.max(0, most - taken - needed) / (1 + #names))
  if part > held then
    if now < learns and learns - now <= @learn@ then part = held else part = math.max(held, math.min(part, most - others)) end
    held = part
  end
  redis.call('HSET', key, me, string.format('%.0f %.0f %.0f', needed, held, now))
end
if #dead > 0 then redis.call('HDEL', key, unpack(dead)) end
redis.call('PEXPIRE', key, @silent@ / 500)
return {part, 0, most, now}
""".replace("@silent@", str(SILENT_NS // 1000))
    .replace("@turn@", str(TURN_NS // 1000))
    .replace("@learn@", str(LEARN_NS // 1000))
    .replace("@credit@", str(ON_CREDIT))
)

PRESENCE: Final = (
    NOW
    + """\
if ARGV[3] == 'leave' then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - @seen@))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + @seen@), '+inf')
redis.call('PEXPIRE', KEYS[1], @seen@ / 500)
return redis.call('ZCARD', KEYS[1])
""".replace("@seen@", str(SEEN_S * 1_000_000))
)

PROOFS: Final = (
    NOW
    + """\
local stamp = string.format('%.0f', now)
for at = 1, 2 do
  redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', string.format('%.0f', now - @seen@))
  redis.call('ZREMRANGEBYSCORE', KEYS[at], string.format('%.0f', now + @seen@), '+inf')
end
local kept = redis.call('ZSCORE', KEYS[1], ARGV[2]) and 1 or 0
if ARGV[5] ~= '' and ARGV[5] ~= ARGV[4] then redis.call('ZREM', KEYS[2], ARGV[5]) end
if ARGV[3] == 'leave' then
  redis.call('ZREM', KEYS[1], ARGV[2])
  if ARGV[4] ~= '' then redis.call('ZREM', KEYS[2], ARGV[4]) end
elseif ARGV[3] == 'stay' then
  redis.call('ZADD', KEYS[1], stamp, ARGV[2])
  if ARGV[4] ~= '' then redis.call('ZADD', KEYS[2], stamp, ARGV[4]) end
end
for at = 1, 2 do redis.call('PEXPIRE', KEYS[at], @seen@ / 500) end
local found = {}
for _, each in ipairs(redis.call('ZRANGE', KEYS[2], -@most@, -1)) do
  if #each <= @longest@ then found[#found + 1] = each end
end
for at = 6, #ARGV do
  if redis.call('ZSCORE', KEYS[2], ARGV[at]) then found[#found + 1] = ARGV[at] end
end
return {stamp, redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]), found, kept}
""".replace("@seen@", str(SEEN_S * 1_000_000))
    .replace("@most@", str(MOST_PROOFS))
    .replace("@longest@", str(MAX_PROOF_BYTES))
)

COUNT: Final = "return redis.call('ZCARD', KEYS[1])"

FIGURES: Final = (
    NOW
    + """\
if ARGV[3] == 'leave' then
  return redis.call('HDEL', KEYS[1], ARGV[2])
end
redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f ', now) .. ARGV[4])
redis.call('PEXPIRE', KEYS[1], @kept@ / 500)
local found = {}
if ARGV[3] == 'read' then
  local all = redis.call('HGETALL', KEYS[1])
  for at = 1, #all, 2 do
    local stamp, told = string.match(all[at + 1], '^(%d+) (.*)$')
    local age = stamp and now - tonumber(stamp)
    if age and math.abs(age) <= @kept@ then
      if #found < @most@ and #told <= @longest@ then found[#found + 1] = string.format('%.0f ', age) .. told end
    else
      redis.call('HDEL', KEYS[1], all[at])
    end
  end
end
return found
""".replace("@kept@", str(KEPT_S * 1_000_000))
    .replace("@most@", str(MOST_READ))
    .replace("@longest@", str(MAX_FIGURES_BYTES))
)


def whole_rate(rate: Rate) -> tuple[int, int]:
    """`rate` as tokens per microseconds, in numbers whose product is exact in a double; the nearest such rate where there is none."""
    exact = Fraction(rate.amount * 1000, rate.per_ns)
    most = exact.denominator
    while exact.numerator * exact.denominator >= EXACT // 2:
        most //= 2
        exact = exact.limit_denominator(most)
    return (exact.numerator, exact.denominator) if exact or not rate.amount else (1, EXACT // 4)  # a token in 71 years, or in longer


def warm_up_us(limit: Limit, algorithm: str) -> int:
    """In how many microseconds it warms up; 0: it does not."""
    return (limit.warm_up_ns or DEFAULT_OVER_NS) // 1000 if algorithm == "warm_up" else 0


def rates_of(limit: Limit) -> tuple[int, int, int, int, int, int]:
    """Amount, microseconds and capacity, of messages and of bytes; an amount of 0 where they are not limited."""
    messages = (0, 1) if limit.messages is None else whole_rate(limit.messages)
    size = (0, 1) if limit.bytes is None else whole_rate(limit.bytes)
    return *messages, limit.messages_capacity(), *size, limit.bytes_capacity()


@lru_cache(4096)
def rates_for(limit: Limit, algorithm: str, members: int) -> tuple[int, int, int, int, int, int]:
    """`rates_of` what the owner has of `limit` in a fleet of so many."""
    return rates_of(owner_limit(limit, members, algorithm, FLEET_ROOM_NS))


@lru_cache(16_384)
def key_of(fleet: str, identity: tuple[str, str, str, str]) -> str:
    """The bucket's key. What stands in braces, its hash tag, is all that decides on which node of a cluster it is.

    Every part is escaped, so that no made-up name meets another's bucket. Names of buckets hold topics, clients and users; nothing else.
    """
    return f"sluice:{{{'|'.join(quote(part, safe='/', errors='surrogatepass') for part in (fleet, *identity))}}}:{VERSION}"


def places_key_of(fleet: str, identity: tuple[str, str, str, str]) -> str:
    """The places of a limit on requests in flight: beside the bucket's key, for a rule's algorithm may change."""
    return f"{key_of(fleet, identity)}:places"


def presence_key_of(fleet: str) -> str:
    return f"sluice:{{{quote(fleet, safe='/')}}}:gateways:{VERSION}"


def proofs_key_of(fleet: str) -> str:
    return f"sluice:{{{quote(fleet, safe='/')}}}:proofs:{VERSION}"


def figures_key_of(fleet: str) -> str:
    return f"sluice:{{{quote(fleet, safe='/')}}}:figures:{VERSION}"

"""When crons fire by another way of working it out, and the zones where it is not obvious.

The product walks the wall's clock and repairs what it meets. This asks of every minute, or of every
local day, what the zone's offsets say; it knows no cron expression but the three that it is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

MINUTE = timedelta(minutes=1)
STEP = timedelta(minutes=5)


def transitions(zone: ZoneInfo, since: datetime, until: datetime) -> list[datetime]:
    """The first whole minutes at which the offset is another than the one before."""
    found = []
    step = timedelta(days=1)
    at = since
    while at < until:
        following = min(at + step, until)
        if offset(zone, at) != offset(zone, following):
            low, high = at, following
            while high - low > MINUTE:
                middle = low + (high - low) / 2
                middle -= timedelta(seconds=middle.second, microseconds=middle.microsecond)
                if middle == low:
                    middle += MINUTE
                if offset(zone, middle) == offset(zone, low):
                    low = middle
                else:
                    high = middle
            found.append(high)
        at = following
    return found


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    """Of this zone at this moment in UTC."""
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return found


def changing_zones(since: datetime, until: datetime) -> dict[str, list[datetime]]:
    """Every zone whose clocks change in these years, with the moments."""
    found = {}
    for name in sorted(available_timezones() - {"localtime", "posixrules", "Factory"}):
        moments = transitions(ZoneInfo(name), since, until)
        if moments:
            found[name] = moments
    return found


def distinct(zones: dict[str, list[datetime]]) -> dict[str, list[datetime]]:
    """One zone of each kind: those that change alike, from and to alike, are one."""
    kinds: dict[tuple[object, ...], str] = {}
    for name, moments in zones.items():
        zone = ZoneInfo(name)
        key = tuple((each, offset(zone, each - MINUTE), offset(zone, each)) for each in moments)
        kinds.setdefault(key, name)
    return {name: zones[name] for name in kinds.values()}


def at_a_fixed_time(zone: ZoneInfo, wall: time, since: datetime, until: datetime) -> list[datetime]:
    """Once each local day: the first time that the wall shows it, or the end of its gap."""
    day, last = since.astimezone(zone).date(), until.astimezone(zone).date()
    found = []
    while day <= last:
        found.append(first_instant(zone, datetime.combine(day, wall)))
        day += timedelta(days=1)
    return sorted({moment for moment in found if since < moment <= until})


def at_the_end_of_months(zone: ZoneInfo, since: datetime, until: datetime) -> list[datetime]:
    """Midnight at the beginning of each month's last day."""
    day, last = since.astimezone(zone).date(), until.astimezone(zone).date()
    found = []
    while day <= last:
        if (day + timedelta(days=1)).month != day.month:
            found.append(first_instant(zone, datetime.combine(day, time())))
        day += timedelta(days=1)
    return [moment for moment in found if since < moment <= until]


def each_half_hour(zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[datetime]:
    """Every moment at which the wall shows :00 or :30; the repeated hour shows them twice.

    Looked for at every fifth minute, because no zone's offset is anything else nowadays.
    """
    moment = since.replace(minute=0, second=0, microsecond=0)
    while moment <= until:
        ahead = offset(zone, moment)
        assert not ahead % STEP
        if moment > since and (moment + ahead).minute % 30 == 0:
            yield moment
        moment += STEP


def first_instant(zone: ZoneInfo, wall: datetime) -> datetime:
    """The first moment at which the wall shows this or, if it never does, the first after it."""
    naive = wall.replace(tzinfo=UTC)
    shows = sorted(
        moment
        for moment in {
            naive - offset(zone, naive + timedelta(hours=hours)) for hours in (-36, -14, 0, 14, 36)
        }
        if moment + offset(zone, moment) == naive
    )
    if shows:
        return shows[0]
    (change,) = [
        each
        for each in transitions(zone, naive - timedelta(days=2), naive + timedelta(days=2))
        if each - MINUTE + offset(zone, each - MINUTE) < naive < each + offset(zone, each)
    ]
    return change

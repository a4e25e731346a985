"""Messages as they arrive, without a gap and without one twice: first the list, then the stream.

The stream is opened before the list is read, so that nothing can fall in between; what both have is shown once.
When the daemon goes away (a restart, an upgrade), the stream goes on after the last event that was seen; was there
none yet, the list is read again.
"""

from collections.abc import Iterator
from typing import Any, Final

from claudemesh.cli.render import Output
from claudemesh.daemon.client import Client, StreamEvent
from claudemesh.kernel.errors import DependencyError, NoDaemon
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.dice import roll
from claudemesh.runtime.processes import pause

Json = dict[str, Any]

PAGE: Final = 1000
RETURNS_MAX: Final = 10  # in a row, without an event: then it is gone for good


def follow_inbox(
    out: Output, client: Client, *, since: str | None = None, topic: str | None = None, sender: str | None = None
) -> Iterator[Json]:
    """Yield what the inbox holds, oldest first, and then what arrives, until nobody listens."""
    shown: set[str] = set()
    for event in _events(out, client):
        if event is None:
            arrived = _listed(client, since, topic, sender)
        elif event.event == "message" and _is_wanted(event.json, topic, sender):
            arrived = iter([event.json])
        else:
            continue
        for message in arrived:
            if message["broker_message_id"] not in shown:
                if event is None:
                    shown.add(message["broker_message_id"])
                yield message


def _listed(client: Client, since: str | None, topic: str | None, sender: str | None) -> Iterator[Json]:
    cursor: str | None = None
    while True:
        page = client.inbox(since=since, topic=topic, sender=sender, limit=PAGE, cursor=cursor)
        yield from page["messages"]
        cursor = page.get("next_cursor")
        if not cursor:
            return


def _is_wanted(message: Json, topic: str | None, sender: str | None) -> bool:
    is_topic = topic is None or message.get("topic") == topic
    return is_topic and (sender is None or sender in (message.get("from"), message.get("from_name")))


def _events(out: Output, client: Client) -> Iterator[StreamEvent | None]:
    """Yield events, and None whenever a stream was opened that knows of nothing before it."""
    last_id = ""
    failures = 0
    is_away = False
    while True:
        try:
            stream = client.stream(last_event_id=last_id)
        except (NoDaemon, DependencyError):
            if not failures or failures >= RETURNS_MAX:
                raise
            if not is_away:
                out.say("the daemon is away; waiting for it to come back")
            is_away = True
        else:
            is_away = False
            with stream:
                if not last_id:
                    yield None
                for event in stream:
                    failures, last_id = 0, event.id or last_id
                    yield event
        failures += 1
        pause(derive_backoff_ms(failures, roll()) / 1000)

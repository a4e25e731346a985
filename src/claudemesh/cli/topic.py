"""`topic`: rooms of a mesh. Only who has joined one posts to it and is told what is posted."""

from contextlib import suppress

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import BrokerUnreachable, DestinationNotFound
from claudemesh.wire.names import parse_topic


def parse_name(text: str) -> str:
    return parse_topic(text.removeprefix("#"))


NAME = click.argument("name", type=parse_name)


@click.group(cls=Group)
def topic() -> None:
    """Topics: create, list, join, leave, tail. To post, `send '#NAME' TEXT`."""


@topic.command()
@NAME
@click.pass_obj
def create(session: Session, name: str) -> None:
    """Make a topic; one that is there stays as it is."""
    with session.client() as client:
        answer = client.topic_create(name)
    session.out.document(answer, [f"#{escape(name)} is there"])


@topic.command("list")
@click.pass_obj
def list_topics(session: Session) -> None:
    """List the topics of the mesh."""
    with session.client() as client:
        answer = client.topic_list()
    rows = [
        (f"#{entry['name']}", "yes" if entry.get("subscribed") else "no", entry.get("subscribers"))
        for entry in answer["topics"]
    ]
    session.out.document(answer, session.out.table(("topic", "joined", "members"), rows))


@topic.command()
@NAME
@click.pass_obj
def join(session: Session, name: str) -> None:
    """Be told of what is posted from now on, and be allowed to post."""
    with session.client() as client:
        answer = client.topic_subscribe(name)
    session.out.document(answer, [f"joined #{escape(name)}"])


@topic.command()
@NAME
@click.pass_obj
def leave(session: Session, name: str) -> None:
    """Be told no more."""
    with session.client() as client:
        answer = client.topic_unsubscribe(name)
    session.out.document(answer, [f"left #{escape(name)}"])


@topic.command()
@NAME
@click.option("--since", metavar="ISO", help="Begin with what was received from then on.")
@click.pass_obj
def tail(session: Session, name: str, since: str | None) -> None:
    """Show what was posted, and go on with what is; with --json one object a line."""
    from claudemesh.cli.follow import follow_inbox  # noqa: PLC0415 - only here
    from claudemesh.cli.messages import show_message  # noqa: PLC0415

    with session.client() as client, suppress(KeyboardInterrupt):  # how following ends
        with suppress(BrokerUnreachable):  # what was posted before is in the inbox all the same
            found = [entry for entry in client.topic_list()["topics"] if entry["name"] == name]
            if not found:
                raise DestinationNotFound("there is no such topic")
            if not found[0].get("subscribed"):
                session.out.say(f"you have not joined #{name}, and are told nothing new of it: topic join {name}")
        for message in follow_inbox(session.out, client, since=since, topic=name):
            show_message(session.out, message)

"""A stored message as the bytes that its recipients are sent."""

import msgspec

from claudemesh.broker.model import Delivery, Fresh, Parcel
from claudemesh.wire.frames import DeliverItem, render_item


def render_delivery(delivery: Delivery) -> bytes:
    return render_item(
        DeliverItem(
            history_id=delivery.history_id,
            broker_message_id=delivery.broker_message_id,
            client_message_id=delivery.client_message_id,
            sender_id=delivery.sender_id,
            sender_pubkey=delivery.sender_pubkey,
            sender_name=delivery.sender_name,
            kind=delivery.kind,
            ref=delivery.ref,
            body=delivery.body,
            accepted_at=delivery.accepted_at,
            reply_to=delivery.reply_to,
            priority=delivery.priority,
            meta=msgspec.json.decode(delivery.meta) if delivery.meta else None,
            to_session=delivery.to_session,
        )
    )


def render_fresh(fresh: Fresh) -> Parcel:
    """Return what the store will say of it from now on."""
    author, message, accepted = fresh.author, fresh.message, fresh.accepted
    delivery = Delivery(
        history_id=accepted.history_id,
        broker_message_id=accepted.broker_message_id,
        client_message_id=message.client_message_id,
        sender_id=author.uid,
        sender_pubkey=author.pubkey,
        sender_name=author.name,
        kind=message.kind,
        ref=message.ref,
        body=message.body,
        accepted_at=fresh.accepted_at,
        reply_to=message.reply_to,
        priority=message.priority,
        meta=message.meta,
        encoding=message.encoding,
        to_session=accepted.to_session,
    )
    payload = render_delivery(delivery)
    return Parcel(accepted.history_id, author.id, message.client_message_id, payload, accepted.to_session)

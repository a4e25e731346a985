"""A stored message as the bytes that its recipients are sent."""

import msgspec

from claudemesh.broker.model import Delivery
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

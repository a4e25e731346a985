"""The broker: accepts messages once, delivers them in order, and keeps them.

    model       values                     policy     rules, and the order of the accept's phases
    ports       what it needs              stores     where it is kept
    service     the accept                 limiters   how much a member may send
    hello       who is it?                 hub        who is connected, and who gets the deliveries
    seating     the right to deliveries, over all brokers of a store
    switchboard who is told what, here and at the other brokers
    sending     the sends of a connection  deliver    its pump and its acks
    hints       its receipts               offer      what is negotiated
    ws calls    what is said on the WebSocket, and the operations of a `call`
    membership http      how a mesh is made and joined
    parcels     a stored message as its recipients are sent it
    upkeep      what is done now and then
    events metering      what happened, and how often
    settings assembly app   settings -> stores -> services -> server, and how it stops

Start with `policy.ACCEPT_PHASES`: what an accept does, in which order, and why.
"""

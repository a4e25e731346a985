"""The broker: accepts messages once, delivers them in order, and keeps them.

model       values            policy    rules, and the order of the accept's phases
ports       what it needs     stores    where it is kept
service     accept            limiter   how much a member may send
hello       who is it?        hub       who is connected, and who gets the deliveries
deliver     the pump of one connection
ws calls    what is said on the WebSocket
membership http   how a mesh is made and joined
upkeep      what is done now and then
app         settings -> stores -> service -> server
"""

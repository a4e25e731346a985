"""The rules of claudemesh as pure functions: no IO, no clock, no randomness.

Three ideas carry the product, and each is written down once, here:

1. key + fingerprint -> verdict      `admission`, `fingerprint`, `canonical`, `ids`
2. the outbox                        `outbox`, `fsm`, `retry`, `retention`
3. the lease                         `lease`

What a rule needs from the world (the time, a random number, the row that stands) comes in as an argument, so
the same function serves every store and every test.
"""

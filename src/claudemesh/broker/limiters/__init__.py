"""How much a member may send: so many new ids in each window of time.

One contract (`broker.ports.Limiter`), and one module for each place where it is counted: this process, or a Redis
that several brokers may share.
"""

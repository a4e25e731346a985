"""The ledger in SQLite.

law/      the schema of each version, which keeps the rules, and what a file's differs in
file      how a ledger is opened, and what holds in every transaction on it
entries   what is written and read: post, claim, complete, requeue, renew, list
chain     the hash chain: a link for each row, and the rows as they are chained
audit     what `verify` finds
upgrade   from one version to the next
"""

"""How to talk to a database. Nothing here knows a word of the product."""

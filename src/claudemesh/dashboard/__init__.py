"""The dashboard: what an operator sees of a daemon, and of the relay, the ledger and the lake in the same home.

It is served by the daemon's TCP listener, and put before it by whoever starts a daemon: `dashboard_of` in `app`.

logins   one-time codes and the short bearers they are traded for
door     what such a bearer may ask
files    the page itself, which is in `static/`
aside    whatever may take long, off the daemon's loop
"""

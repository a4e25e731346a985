"""The dashboard put together: what a daemon is extended by."""

from claudemesh.asgi.events import TokenRotated
from claudemesh.daemon.http.extension import Extend, Extension
from claudemesh.daemon.http.parts import Parts
from claudemesh.dashboard.door import Door
from claudemesh.dashboard.files import file_routes, load_files, public_paths
from claudemesh.dashboard.ledger import ledger_routes
from claudemesh.dashboard.login import LOGIN, login_routes
from claudemesh.dashboard.logins import Logins
from claudemesh.dashboard.outbox import outbox_routes
from claudemesh.dashboard.overview import overview_routes
from claudemesh.dashboard.pipeline import pipeline_routes
from claudemesh.dashboard.relay import RelayView, relay_routes
from claudemesh.dashboard.traffic import traffic_routes
from claudemesh.runtime.home import Home


def dashboard_of(home: Home) -> Extend:
    """Return what extends a daemon by the dashboard of its home: the relay, ledger and lake there are shown too."""

    def extend(parts: Parts) -> Extension:
        world, pages = parts.world, load_files()
        logins = Logins(world.clock)
        # Who takes a new local token wants the old world shut out.
        world.observer.subscribe(TokenRotated, lambda _: logins.end_all())
        relay = RelayView(home.edge_dir, world.clock)
        return Extension(
            routes=[
                *login_routes(parts, logins),
                *overview_routes(parts, relay),
                *traffic_routes(parts),
                *outbox_routes(parts),
                *relay_routes(relay),
                *ledger_routes(home.ledger_db),
                *pipeline_routes(home.lake_dir),
                *file_routes(pages),
            ],
            public_paths=public_paths(pages) | {LOGIN},
            tokens=logins,
            door=lambda app: Door(app, logins),
        )

    return extend

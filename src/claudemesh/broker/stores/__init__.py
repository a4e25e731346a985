"""Where the broker keeps what it promised. One contract (`broker.ports`), one folder for each database."""

#!/usr/bin/env bash
# Provides what the tests need and no wheel brings. Asks nothing of the network when all of it is there.
# PostgreSQL is not among it: its server comes as a wheel (docs/decisions/0005).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

has() { command -v "$1" >/dev/null; }

java_is_new_enough() { # Spark 4 needs 17
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  version=$("$java" -version 2>&1) && [[ $version =~ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17))
}

has_chromium() { has chromium || has chromium-browser || has google-chrome || playwright_has_chromium; }

playwright_has_chromium() {
  compgen -G "${PLAYWRIGHT_BROWSERS_PATH:-${HOME:-}/.cache/ms-playwright}/chromium-*" >/dev/null
}

is_ubuntu() { grep --quiet '^ID=ubuntu' /etc/os-release 2>/dev/null; }

missing=()
has redis-server || missing+=(redis-server)
has openssl || missing+=(openssl)   # makes certificates
has strace || missing+=(strace)     # injects a failing sync
has setpriv || missing+=(util-linux) # ends a server with its test run
has ip || missing+=(iproute2)       # loses packets between two network namespaces
if ! java_is_new_enough; then
  if [[ -n ${JAVA_HOME:-} ]]; then
    echo "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer. Point it at one, or unset it." >&2
    exit 1
  fi
  missing+=('openjdk-21-jre-headless|openjdk-17-jre-headless')
fi
# Ubuntu's package is a snap, which cannot reach a test's directories: there Playwright brings its own (not tried).
has_chromium || is_ubuntu || missing+=(chromium)

((${#missing[@]} == 0)) || tools/apt.sh "${missing[@]}"
has_chromium || .venv/bin/playwright install --with-deps chromium

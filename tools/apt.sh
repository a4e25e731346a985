#!/usr/bin/env bash
# Installs packages of Debian or Ubuntu: tools/apt.sh NAME... ; in A|B the first that the distribution has.
# As root or with a sudo that asks nothing; otherwise prints the command that a person has to run.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
  echo "This system has no apt-get. Please install by its own means what Debian calls: $*" >&2
  exit 1
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  as_root=(sudo)
fi
if [[ $EUID -eq 0 ]] || sudo --non-interactive true 2>/dev/null; then
  "${as_root[@]}" apt-get update || "${as_root[@]}" apt-get update # a mirror in the middle of its own update
  allowed=yes
fi

packages=()
for choice in "$@"; do
  for name in ${choice//|/ }; do
    if apt-cache policy "$name" | grep --quiet 'Candidate: [^(]'; then
      break
    fi
  done
  packages+=("$name") # the last one when none is known, so that apt-get itself says what is missing
done

# SYSTEMD_OFFLINE: a package's script would start its server at once, and we start our own.
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1
  apt-get install --yes --no-install-recommends "${packages[@]}")
if [[ ${allowed:-no} != yes ]]; then
  echo "Some system packages are missing, and this user may not install them. Please run:" >&2
  echo "  sudo apt-get update && ${install[*]}" >&2
  exit 1
fi
"${install[@]}"

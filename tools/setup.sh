#!/usr/bin/env bash
# Makes .venv from the pins in requirements/ and does nothing when it is current.
#
#   tools/setup.sh dev     everything: all extras, checks, tests, docs
#   tools/setup.sh demo    the package with all its commands and a Java, for a first look
#
# PYTHON names the interpreter to use; without it an existing .venv keeps its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

set_name=${1:?dev or demo}
venv=.venv
stamp=$venv/claudemesh-setup

# Tells one Python from another; fails for one that does not run or that we do not support.
identity() {
  "$1" -I -c 'import sys
print(sys.version, sys.base_prefix)
sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null
}

find_python() {
  local candidate candidates=(python3 python3.13 python3.12 python3.11 python3.14)
  if [[ -n ${PYTHON:-} ]]; then
    candidates=("$PYTHON")
  fi
  for candidate in "${candidates[@]}"; do
    if identity "$candidate" >/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "No working Python 3.11 to 3.14 found${PYTHON:+ as $PYTHON}." >&2
  echo "Install one (Debian, Ubuntu: apt-get install python3) or name it: make setup PYTHON=/path/to/python3" >&2
  return 1
}

# What the environment is made of. Another byte in any of it makes the stamp stale.
key() {
  { cat requirements/*.txt pyproject.toml && identity "$1"; } | sha256sum | cut -d' ' -f1
}

# Two runs at once would write into one directory. The lock is on the project's directory: no file to leave behind.
exec 9<.
flock 9

python=$venv/bin/python
usable() { # one that was finished, still runs, and is of the Python asked for
  [[ -f $stamp ]] && identity $python >/dev/null && [[ -z ${PYTHON:-} || $(identity $python) == "$(identity "$PYTHON")" ]]
}

if [[ -n ${PYTHON:-} ]]; then
  find_python >/dev/null # a wrong name must not cost a good environment
fi
if usable; then
  read -r made_set made_key <$stamp
  if [[ $made_key == "$(key $python)" && ($made_set == "$set_name" || $made_set == dev) ]]; then
    exit
  fi
else
  base_python=$(find_python)
  if ! "$base_python" -c 'import ensurepip' 2>/dev/null; then # Debian keeps it in a package of its own
    tools/apt.sh "$("$base_python" -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))')"
  fi
  "$base_python" -m venv --clear $venv
fi

not_fetched() {
  echo "Set-up stopped, see above. If nothing could be reached: it needs the network, or a mirror of the package index" >&2
  echo "named in pip's and uv's own settings. What is fetched once is kept in their caches. If a certificate was not" >&2
  echo "trusted: SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt has uv go by this machine's." >&2
  exit 1
}

rm -f $stamp
export UV_PYTHON_DOWNLOADS=never
uv=("$python" -m uv pip)
$python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt || not_fetched
# Build backends are pinned like the rest (requirements/uv.txt), so nothing is fetched unhashed to build a package.
case $set_name in
  dev) "${uv[@]}" sync --python $python --require-hashes --no-build-isolation requirements/dev.txt || not_fetched ;;
  demo) "${uv[@]}" install --python $python --require-hashes --no-build-isolation -r requirements/demo.txt || not_fetched ;;
  *) echo "tools/setup.sh: dev or demo, not $set_name" >&2 && exit 2 ;;
esac
"${uv[@]}" install --python $python --no-deps --no-build-isolation --editable .
echo "$set_name $(key $python)" >$stamp

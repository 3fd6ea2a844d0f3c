#!/bin/sh
# venv.sh DIRECTORY: make a virtual environment with Python 3.11 or later, or say what is missing.
# Debian keeps the module `venv` in a package of its own; root gets it installed.
set -eu
directory=$1
python=${PYTHON:-python3}

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

if ! recent "$python"; then
    for other in python3.14 python3.13 python3.12 python3.11; do
        if recent "$other"; then python=$other; break; fi
    done
fi
if ! recent "$python"; then
    echo "pgflowd needs Python 3.11 or later, and $python is not; name one: make PYTHON=..." >&2
    exit 1
fi
if ! has_venv "$python"; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package"
    else
        echo "$python cannot make virtual environments; run: sudo apt-get install $package" >&2
        exit 1
    fi
fi
"$python" -m venv "$directory" || { rm -rf "$directory"; exit 1; }

#!/usr/bin/env bash
# Build the wheel, install it into an environment of its own, and run the demo from there, with every socket denied. The
# packages that fedcollab depends on are those of .venv (fedcollab itself is not: a path file does not follow the path
# files in that folder).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m pip wheel -q --no-deps --wheel-dir "$place" .
"$python" -m venv --without-pip "$place/env"
site=$("$place/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -m pip install -q --no-deps --target "$site" "$place"/fedcollab-*.whl
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/dependencies.pth"
cp tools/no_network.py "$place"
cd "$place"
unset PYTHONPATH
"$place/env/bin/python" -c "
import pathlib, sys, fedcollab
assert pathlib.Path(fedcollab.__file__).is_relative_to(sys.argv[1]), fedcollab.__file__" "$site"
"$place/env/bin/python" no_network.py demo --quiet --json --out "$place/demo" > "$place/demo.json"
"$place/env/bin/python" -c "import json, sys; json.load(open(sys.argv[1]))" "$place/demo.json"
test -s "$place/demo/report.html"
echo "the wheel installs, and the demo runs from it without a network"

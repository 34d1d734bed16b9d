#!/usr/bin/env bash
# native.sh OUT.so: builds the native library unless OUT.so was built from exactly these sources.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
stamp=$out.sources
now=$(cat native/build.sh native/shim/* native/kernels/* native/gloo/* | sha256sum)
if [ -e "$out" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then exit 0; fi
echo "native: compiling $out, about a minute on an idle core"
sh native/build.sh "$out"
echo "$now" >"$stamp"

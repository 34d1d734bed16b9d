#!/usr/bin/env bash
# text.sh OUT.txt: writes a text of four megabytes for language models: the King James Bible
# (public domain), printed by Debian's bible-kjv. The packages are downloaded and unpacked
# in a temporary folder, not installed.
set -euo pipefail
out=$1
[ -s "$out" ] && exit 0
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
chmod 755 "$work"
apt-get download bible-kjv bible-kjv-text >log 2>&1 || {
  cat log >&2
  echo "text: apt-get cannot download bible-kjv; run apt-get update" >&2
  exit 1
}
for deb in *.deb; do dpkg-deb -x "$deb" root; done
root/usr/bin/bible -d root/usr/lib/bible.data gen1:1-rev22:21 >text
mv text "$out"

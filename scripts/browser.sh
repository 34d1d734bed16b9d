#!/usr/bin/env bash
# browser.sh: installs what the tests of pages need: Debian's chromium with a font, and axe-core in build/axe.min.js.
# axe-core is fetched by npm, which is installed from Debian if missing. The script asks nothing, says what it does, and
# ends at once if nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.14.1
sum=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
out=build/axe.min.js

command -v chromium >/dev/null || scripts/setup.sh chromium fonts-dejavu-core
echo "$sum  $out" | sha256sum --check --status 2>/dev/null && exit 0
command -v npm >/dev/null || scripts/setup.sh npm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "browser: fetching axe-core $version"
(cd "$work" && npm pack --silent "axe-core@$version" >log 2>&1 && tar xzf ./*.tgz) || {
  cat "$work/log" >&2
  echo "browser: npm cannot fetch axe-core $version" >&2
  exit 1
}
echo "$sum  $work/package/axe.min.js" | sha256sum --check --status || {
  echo "browser: axe-core $version is not the one that was published: $(sha256sum "$work/package/axe.min.js")" >&2
  exit 1
}
mkdir -p build
mv "$work/package/axe.min.js" "$out"

#!/usr/bin/env bash
# setup.sh [PACKAGE...]: installs those of millrace's Debian packages, and of the packages named, that are
# missing. It asks nothing, says what it does, and ends at once if nothing is missing.
set -euo pipefail

packages=(libtorch-dev libgloo-dev libopenblas0-pthread g++ dataset-fashion-mnist "$@")
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
as=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "setup: missing: ${missing[*]}; not root, and sudo is not there or asks for a password;" \
      "run this, then make again:" >&2
    echo "  sudo apt-get update && sudo ${install[*]}" >&2
    exit 1
  fi
  as=(sudo -n)
fi
echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! {
  "${as[@]}" apt-get update && "${as[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
} </dev/null >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get failed, see above" >&2
  exit 1
fi
echo "setup: installed"

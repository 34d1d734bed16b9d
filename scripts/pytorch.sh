#!/usr/bin/env bash
# pytorch.sh: installs what the tests of PyTorch models and the rivals of `millrace-lab bench` need: Debian's
# python3-torch and python3-torchvision, and iproute2 for slow links. It asks nothing, says what it does, and ends at
# once if nothing is missing. If it may not install packages, it prints the command and ends with status 1.
set -euo pipefail

PATH="$PATH:/usr/sbin:/sbin"
works() {
  command -v ip >/dev/null && command -v tc >/dev/null && /usr/bin/python3 -c 'import torch, torchvision'
}

works 2>/dev/null && exit 0
packages=(python3-torch python3-torchvision iproute2)
"$(dirname "$0")/setup.sh" "${packages[@]}"
if ! works; then
  echo "pytorch: ${packages[*]} are installed, but ip, tc, or torch and torchvision in /usr/bin/python3 do not work" >&2
  exit 1
fi

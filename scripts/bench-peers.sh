#!/bin/sh
# Installs what the rivals of `millrace-lab bench peers` and `bench slow` need: Debian's python3-torch, and iproute2 for
# slow links.
# Asks nothing and says what it does; where it may not install, it prints the command
# and ends with status 1. A second run finds everything there.
set -eu

packages="python3-torch iproute2"
install="apt-get install -y --no-install-recommends $packages"

works() {
	PATH="$PATH:/usr/sbin:/sbin"
	command -v ip >/dev/null && command -v tc >/dev/null &&
		/usr/bin/python3 -c 'import torch.distributed.pipeline.sync' 2>/dev/null
}

if works; then
	echo "bench-peers: installed are $packages"
	exit 0
fi
if [ "$(id -u)" = 0 ]; then
	become=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	become="sudo -n"
else
	echo "bench-peers: not all of $packages is installed and this user may not install it; as root: $install" >&2
	exit 1
fi
echo "bench-peers: installing $packages (with libtorch about 180 MB unpacked)"
export DEBIAN_FRONTEND=noninteractive
# Package lists that are there and recent enough save the update.
$become $install >/dev/null 2>&1 || {
	$become apt-get update -qq
	$become $install
}
if ! works; then
	echo "bench-peers: $packages is installed, but /usr/bin/python3 does not load" \
		"torch.distributed.pipeline.sync from it;" \
		"version 1.13 of Debian 12 has it, versions from 2.4 on do not" >&2
	exit 1
fi

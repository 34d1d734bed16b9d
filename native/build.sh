#!/bin/sh
# build.sh OUT.so: compiles shim/, beside this script, against an installed libtorch.
#
# TORCH_DIR  a libtorch folder with include/ and lib/ (pip's torch/ folder or the
#            downloaded libtorch/). Unset: Debian's libtorch-dev, in the system paths.
# CXX        the compiler; g++ if unset.
# Exit code 2: no libtorch or no compiler, with one line that says what to do.
set -eu

out=${1:?usage: build.sh OUT.so}
here=$(cd "$(dirname "$0")" && pwd)/shim
cxx=${CXX:-g++}

if ! command -v "$cxx" >/dev/null 2>&1; then
  echo "native: no C++ compiler '$cxx'; on Debian: apt-get install g++" >&2
  exit 2
fi

if [ -n "${TORCH_DIR:-}" ]; then
  include=$TORCH_DIR/include
  api=$include/torch/csrc/api/include
  lib=$TORCH_DIR/lib
else
  include=/usr/include
  api=$include/torch/csrc/api/include
  lib=
  for d in "/usr/lib/$("$cxx" -print-multiarch 2>/dev/null || true)" /usr/lib /usr/lib64; do
    if [ -e "$d/libtorch_cpu.so" ]; then lib=$d; break; fi
  done
fi
if [ ! -e "$include/ATen/core/Tensor.h" ] || [ -z "$lib" ] || [ ! -e "$lib/libtorch_cpu.so" ]; then
  echo "native: no libtorch${TORCH_DIR:+ in TORCH_DIR=$TORCH_DIR}; on Debian: apt-get install libtorch-dev, or set TORCH_DIR to a libtorch folder" >&2
  exit 2
fi

# A 2.x libtorch needs C++17; 1.13 is content with it too. The downloaded builds say
# which string ABI they use by a flag in their CMake file.
abi=
if [ -n "${TORCH_DIR:-}" ]; then
  abi=$(grep -rhso 'D_GLIBCXX_USE_CXX11_ABI=[01]' "$TORCH_DIR/share/cmake/Torch/TorchConfig.cmake" | head -n 1 || true)
fi

work=$(mktemp -d)
trap 'rm -rf "$work" "$out.new.$$"' EXIT
trap 'exit 1' HUP INT TERM
flags="-std=c++17 -O2 -fopenmp -fno-math-errno -fPIC -fvisibility=hidden -Wall -Wno-unknown-pragmas ${abi:+-$abi}"

pids=
for f in "$here"/*.cpp; do
  name=$(basename "$f" .cpp)
  # shellcheck disable=SC2086
  "$cxx" $flags ${TORCH_DIR:+-isystem "$include"} -isystem "$api" -c "$f" -o "$work/$name.o" &
  pids="$pids $!"
done
for p in $pids; do wait "$p"; done

# The finished file is moved in place, so that nobody ever loads half of one.
"$cxx" -shared -fopenmp -o "$work/out.so" "$work"/*.o -L"$lib" -Wl,-rpath,"$lib" -ltorch_cpu -lc10 -ldl -lpthread
mkdir -p "$(dirname "$out")"
cp "$work/out.so" "$out.new.$$"
mv "$out.new.$$" "$out"

#!/bin/sh
# build.sh [--dry-run] OUT.so: compiles shim/, kernels/ and gloo/, beside this script, against an
# installed libtorch. --dry-run prints what it would compile against and how, and compiles nothing.
#
# TORCH_DIR  a libtorch folder with include/ and lib/ (pip's torch/ folder or the
#            downloaded libtorch/). If it is unset, Debian's libtorch-dev in the system paths is taken.
# CUDA_HOME  the folder whose include/ has CUDA's headers, for a libtorch with CUDA. The usual places are
#            searched too.
# CXX        the compiler; g++ if it is unset.
# KERNELS    "none" leaves kernels/ out, which the library does not need (shim/kernels.h says what
#            differs). Otherwise they are compiled, and left out only if they do not compile.
# Exit code 2 means that there is no usable libtorch or no compiler; one line says what to do.
set -eu

dry=
if [ "${1:-}" = --dry-run ]; then
  dry=yes
  shift
fi
out=${1:?usage: build.sh [--dry-run] OUT.so}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cxx=${CXX:-g++}

if ! command -v "$cxx" >/dev/null 2>&1; then
  echo "native: no C++ compiler '$cxx'; on Debian: apt-get install g++" >&2
  exit 2
fi

# absolute DIR: prints the absolute path of DIR, so that the linked libraries are found from any working
# directory. A DIR that does not exist is printed as it is.
absolute() { CDPATH='' cd -- "$1" 2>/dev/null && pwd || echo "$1"; }

if [ -n "${TORCH_DIR:-}" ]; then
  TORCH_DIR=$(absolute "$TORCH_DIR")
  include=$TORCH_DIR/include
  lib=$TORCH_DIR/lib
else
  include=/usr/include
  lib=
  for d in "/usr/lib/$("$cxx" -print-multiarch 2>/dev/null || true)" /usr/lib /usr/lib64; do
    if [ -e "$d/libtorch_cpu.so" ]; then lib=$d; break; fi
  done
fi
api=$include/torch/csrc/api/include
if [ ! -e "$include/ATen/core/Tensor.h" ] || [ -z "$lib" ] || [ ! -e "$lib/libtorch_cpu.so" ]; then
  echo "native: no libtorch${TORCH_DIR:+ in TORCH_DIR=$TORCH_DIR}; on Debian: apt-get install libtorch-dev," \
    "or set TORCH_DIR to a libtorch folder" >&2
  exit 2
fi

# number NAME: prints the value of TORCH_VERSION_NAME in libtorch's version.h; nothing if it is not there.
number() { sed -n "s/^#define TORCH_VERSION_$1 \([0-9][0-9]*\).*/\1/p" "$api/torch/version.h" 2>/dev/null | head -n 1; }
major=$(number MAJOR)
minor=$(number MINOR)
patch=$(number PATCH)
if [ -z "$major" ] || [ -z "$minor" ]; then
  echo "native: $api/torch/version.h says no version of libtorch; set TORCH_DIR to a whole libtorch folder" >&2
  exit 2
fi

# The headers of libtorch 2.12 and later need C++20; for earlier ones C++17 is enough.
standard=c++17
if [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 12 ]; }; then standard=c++20; fi

# A downloaded libtorch may be built with the old string ABI. Its CMake file says which ABI it has; if that
# file does not, the symbol names in libc10.so show it. Debian's libtorch has the compiler's own ABI.
abi=
if [ -n "${TORCH_DIR:-}" ]; then
  config=$TORCH_DIR/share/cmake/Torch/TorchConfig.cmake
  abi=$(grep -hso 'D_GLIBCXX_USE_CXX11_ABI=[01]' "$config" | head -n 1 | tail -c 2 || true)
  if [ -z "$abi" ] && names=$(nm -D "$lib/libc10.so" 2>/dev/null) && [ -n "$names" ]; then
    case $names in *__cxx11*) abi=1 ;; *) abi=0 ;; esac
  fi
fi

# A libtorch with CUDA registers its CUDA kernels when libtorch_cuda is loaded. No code here refers to that
# library, so --no-as-needed makes the linker keep it. libtorch's headers include CUDA's headers, which are
# not in its folder.
cuda=
cuda_include=
if [ -e "$lib/libtorch_cuda.so" ]; then
  cuda="-Wl,--no-as-needed -ltorch_cuda -lc10_cuda -ltorch -Wl,--as-needed"
  for d in ${CUDA_HOME:+"$CUDA_HOME/include"} "$lib"/../../nvidia/cuda_runtime/include \
    "$lib"/../../nvidia/cu1[0-9]/include /usr/local/cuda/include /usr/include; do
    if [ -e "$d/cuda_runtime_api.h" ]; then cuda_include=$d; break; fi
  done
fi

# searched DIR: succeeds if the compiler searches DIR for headers by default. Such a folder must not be given
# by -isystem: it would then be searched before the C++ library's folders, whose headers must come first.
searched() {
  case $(CDPATH='' cd -P -- "$1" && pwd) in /usr/include | /usr/local/include) return 0 ;; esac
  return 1
}

with=no
if [ "${KERNELS:-}" != none ]; then with=kernels; fi

against="torch $major.$minor${patch:+.$patch} in $lib, $standard${abi:+, CXX11_ABI $abi}"
against=$against${cuda:+, CUDA${cuda_include:+ (headers in $cuda_include)}}
set -- "-std=$standard" -O2 -fPIC -fvisibility=hidden -Wall -Wno-unknown-pragmas
if [ -n "$abi" ]; then set -- "$@" "-D_GLIBCXX_USE_CXX11_ABI=$abi"; fi
if [ -n "${TORCH_DIR:-}" ] && ! searched "$include"; then set -- "$@" -isystem "$include"; fi
set -- "$@" -isystem "$api"
if [ -n "$cuda_include" ] && ! searched "$cuda_include"; then set -- "$@" -isystem "$cuda_include"; fi
set -- "$@" -I "$here/shim"
# Gloo is used if its headers lie beside libtorch's and this libtorch is itself linked against libgloo.so:
# then every machine that can load this libtorch has libgloo.so too.
gloo=
if [ -e "$include/gloo/allreduce.h" ] && grep -qa 'libgloo\.so' "$lib/libtorch_cpu.so"; then
  if [ -e "$lib/libgloo.so" ]; then
    gloo=-lgloo
  elif [ -z "${TORCH_DIR:-}" ] && [ -e /usr/lib/libgloo.so ]; then
    gloo="-L/usr/lib -lgloo"
  fi
fi
loops="-fopenmp -fno-math-errno"

if [ -n "$dry" ]; then
  echo "against: $against"
  echo "shim: $cxx $*"
  if [ $with = kernels ]; then echo "kernels: $cxx $* $loops"; fi
  if [ -n "$gloo" ]; then echo "gloo: $cxx $*"; fi
  echo "link: $cxx -shared -fopenmp -o $out -L$lib -Wl,-rpath,$lib -ltorch_cpu -lc10 $cuda $gloo -ldl -lpthread"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work" "$out.new.$$"' EXIT
trap 'exit 1' HUP INT TERM
echo "native: compiling against $against"

# compile FOLDER FLAG...: compiles the folder's files, all at the same time, into $work/FOLDER.
compile() {
  folder=$1
  shift
  mkdir "$work/$folder"
  pids=
  for f in "$here/$folder"/*.cpp; do
    "$cxx" "$@" -c "$f" -o "$work/$folder/$(basename "$f" .cpp).o" &
    pids="$pids $!"
  done
  failed=0
  for p in $pids; do wait "$p" || failed=1; done
  return $failed
}

# shellcheck disable=SC2086
if [ $with = kernels ] && ! compile kernels "$@" $loops; then
  echo "native: the CPU kernels do not compile against this libtorch, see above; going without them" >&2
  rm -rf "$work/kernels"
fi
if [ -n "$gloo" ] && ! compile gloo "$@"; then
  echo "native: the sums by Gloo do not compile against these headers, see above; going without them" >&2
  rm -rf "$work/gloo"
  gloo=
fi
against=$against${gloo:+, Gloo}
# The hash of the sources, calculated as engine/torch (sourceHash) does: a millrace built from other sources
# does not load this library.
sources=$(cd "$here" && export LC_ALL=C &&
  cat build.sh shim/*.h shim/*.cpp kernels/*.h kernels/*.cpp gloo/*.cpp | sha256sum | cut -c 1-12)
compile shim "$@" "-DMR_BUILT_AGAINST=\"$against\"" "-DMR_SOURCES=\"$sources\""
# The finished file is moved into place, so that nobody ever loads a half-written one.
# shellcheck disable=SC2086
"$cxx" -shared -fopenmp -o "$work/out.so" "$work"/*/*.o -L"$lib" -Wl,-rpath,"$lib" \
  -ltorch_cpu -lc10 $cuda $gloo -ldl -lpthread
mkdir -p "$(dirname "$out")"
cp "$work/out.so" "$out.new.$$"
mv "$out.new.$$" "$out"

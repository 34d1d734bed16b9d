#!/bin/sh
# build.sh [--dry-run] OUT.so: compiles shim/, kernels/ and gloo/, beside this script, against an
# installed libtorch. --dry-run prints what it would compile against and how, and compiles nothing.
#
# TORCH_DIR  a libtorch folder with include/ and lib/ (pip's torch/ folder or the
#            downloaded libtorch/). Unset: Debian's libtorch-dev, in the system paths.
# CUDA_HOME  where CUDA's headers are, for a libtorch with CUDA; looked for if unset.
# CXX        the compiler; g++ if unset.
# KERNELS    none: without kernels/, which the library does not need (shim/kernels.h says what
#            differs). Unset: with them, and without where they do not compile.
# Exit code 2: no libtorch or no compiler, with one line that says what to do.
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

# absolute DIR: DIR from the root on, by which what is linked is found from anywhere; as it is if there is none.
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

# number NAME: a number that libtorch's version.h defines.
number() { sed -n "s/^#define TORCH_VERSION_$1 \([0-9][0-9]*\).*/\1/p" "$api/torch/version.h" 2>/dev/null | head -n 1; }
major=$(number MAJOR)
minor=$(number MINOR)
patch=$(number PATCH)
if [ -z "$major" ] || [ -z "$minor" ]; then
  echo "native: $api/torch/version.h says no version of libtorch; set TORCH_DIR to a whole libtorch folder" >&2
  exit 2
fi

# The headers of 2.12 and later ask for C++20, those before are content with C++17.
standard=c++17
if [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 12 ]; }; then standard=c++20; fi

# Builds that are downloaded may have the old string ABI: their CMake file says so, and where it does
# not, the names in their library do. Debian's have the compiler's own.
abi=
if [ -n "${TORCH_DIR:-}" ]; then
  config=$TORCH_DIR/share/cmake/Torch/TorchConfig.cmake
  abi=$(grep -hso 'D_GLIBCXX_USE_CXX11_ABI=[01]' "$config" | head -n 1 | tail -c 2 || true)
  if [ -z "$abi" ] && names=$(nm -D "$lib/libc10.so" 2>/dev/null) && [ -n "$names" ]; then
    case $names in *__cxx11*) abi=1 ;; *) abi=0 ;; esac
  fi
fi

# A libtorch with CUDA registers its kernels when libtorch_cuda is loaded, which nothing here names: it
# must be linked although it looks unused. Its headers include CUDA's, which torch's folder lacks.
cuda=
cuda_include=
if [ -e "$lib/libtorch_cuda.so" ]; then
  cuda="-Wl,--no-as-needed -ltorch_cuda -lc10_cuda -ltorch -Wl,--as-needed"
  for d in ${CUDA_HOME:+"$CUDA_HOME/include"} "$lib"/../../nvidia/cuda_runtime/include \
    "$lib"/../../nvidia/cu1[0-9]/include /usr/local/cuda/include /usr/include; do
    if [ -e "$d/cuda_runtime_api.h" ]; then cuda_include=$d; break; fi
  done
fi

# searched DIR: the compiler looks there by itself. Told to, it would look there before its own folders, which
# its library's headers rely on being in front.
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
# Gloo, where the headers lie beside libtorch's and its library is one that this libtorch itself is linked against:
# wherever that opens, what is built here does too.
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

# compile FOLDER FLAG...: its files at the same time, into work/FOLDER.
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
# What it is made of, as engine/torch (sourceHash) calculates it: a millrace of other sources does not load it.
sources=$(cd "$here" && export LC_ALL=C &&
  cat build.sh shim/*.h shim/*.cpp kernels/*.h kernels/*.cpp gloo/*.cpp | sha256sum | cut -c 1-12)
compile shim "$@" "-DMR_BUILT_AGAINST=\"$against\"" "-DMR_SOURCES=\"$sources\""
# The finished file is moved in place, so that nobody ever loads half of one.
# shellcheck disable=SC2086
"$cxx" -shared -fopenmp -o "$work/out.so" "$work"/*/*.o -L"$lib" -Wl,-rpath,"$lib" \
  -ltorch_cpu -lc10 $cuda $gloo -ldl -lpthread
mkdir -p "$(dirname "$out")"
cp "$work/out.so" "$out.new.$$"
mv "$out.new.$$" "$out"

#!/usr/bin/env bash
# lint.sh: checks the sources without running them, and installs the tools for that. It says what is wrong in which
# file, and ends with status 1 if anything is.
set -euo pipefail
cd "$(dirname "$0")/.."
wrong=0
# look NAME COMMAND...: runs a check, which fails if the command fails or prints anything. On a machine without the
# modules, Go also prints what it downloads.
look() {
  local name=$1 said ok=1
  shift
  said=$("$@" 2>&1) || ok=0
  said=$(sed '/^go: downloading /d' <<<"$said")
  [ $ok = 1 ] && [ -z "$said" ] && return
  echo "lint: $name"
  printf '%s\n' "$said"
  wrong=1
}
# shellcheck disable=SC2317 # look runs it
modules() {
  local file work
  work=$(mktemp -d)
  for file in $(git ls-files '*.js'); do
    cp "$file" "$work/module.mjs"
    node --check "$work/module.mjs" 2>&1 | sed "s|$work/module.mjs|$file|" || true
  done
  rm -r "$work"
}
# shellcheck disable=SC2317 # look runs it
format() { git ls-files 'native/*.cpp' 'native/*.h' | xargs clang-format --dry-run -Werror; }

scripts/setup.sh shellcheck clang-format
command -v node >/dev/null || scripts/setup.sh nodejs
mapfile -t sources < <(git ls-files '*.go')
mapfile -t shells < <(git ls-files '*.sh' .ci/run)
echo "lint: gofmt, vet, staticcheck, shellcheck, clang-format, node --check"
look gofmt gofmt -l "${sources[@]}"
look vet go vet ./...
# Only engine/torch has files that are built without cgo only, so only it is vetted again; the rest is just built.
look "vet without cgo" env CGO_ENABLED=0 go vet ./engine/torch
look "build without cgo" env CGO_ENABLED=0 go build -o /dev/null ./cmd/millrace
look staticcheck go tool staticcheck ./...
# A committed link would replace an ignored folder of the same name, such as build, in every checkout.
look "links in the repository" bash -c "git ls-files --stage | grep ^120000 || true"
look shellcheck shellcheck "${shells[@]}"
look clang-format format
look "node --check" modules
exit $wrong

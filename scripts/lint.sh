#!/usr/bin/env bash
# lint.sh: looks at the sources without running them, and installs the tools that this takes. Says what is wrong with
# which file, and ends with 1 where anything is.
set -euo pipefail
cd "$(dirname "$0")/.."
wrong=0
# look NAME COMMAND...: runs a check; what it prints is what is wrong.
look() {
  local name=$1 said
  shift
  said=$("$@" 2>&1) && [ -z "$said" ] && return
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
# Only what leans on cgo is written twice; that all else builds without it, its compiler says.
look "vet without cgo" env CGO_ENABLED=0 go vet ./engine/torch
look "build without cgo" env CGO_ENABLED=0 go build -o /dev/null ./cmd/millrace
look staticcheck go tool staticcheck ./...
# A link in a checkout replaces the ignored folder of its name, as one named build has done.
look "links in the repository" bash -c "git ls-files --stage | grep ^120000 || true"
look shellcheck shellcheck "${shells[@]}"
look clang-format format
look "node --check" modules
exit $wrong

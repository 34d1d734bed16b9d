# make demo   sets up everything and trains a planned pipeline on real data
# make test   sets up everything and runs every test
# make lint   looks at the sources alone: gofmt, vet, staticcheck, shellcheck, clang-format, node
# make attack runs millrace on bad inputs, kills, signals and full disks, and strangers on a training's ports;
#             ATTACK='--only kills --seed 2' are flags of the first, alone
# make pictures takes the pictures of the documentation anew: pinned trainings, pages in a headless Chromium
# make gallery makes docs/schedules.md with its drawings, docs/cli.md and docs/formats.md
# make site   builds the documentation as a static site in build/site
# make slow   compares with data parallelism between hosts with slow links; SLOW='--hosts 2 --rates 1gbit' are its flags
# make papers runs every experiment of the four papers that plans or simulates, and writes docs/papers.md
# make runs   trains the list of small runs in lab/runs; with AGAINST=COMMIT, compares with that commit

SHELL := /bin/bash
NATIVE := build/libmillrace_native.so
TEXT := build/text/kjv.txt
export CGO_ENABLED := 1

.PHONY: papers pictures gallery site demo test runs build setup setup-pytorch lint bench slow soak attack clean

demo: build
	bin/millrace train --job examples/demo.yaml --overwrite

# Tests of launchers and shells that are not there are skipped; those of PyTorch models fail without it.
test: setup setup-pytorch
	@scripts/browser.sh
	-@scripts/setup.sh openmpi-bin mpich zsh fish bash-completion
	@scripts/lint.sh
	go test -timeout 30m ./...

runs: build
	bin/millrace-lab run $(if $(AGAINST),--against $(AGAINST))

build: setup
	@mkdir -p bin
	go build -trimpath -o bin/millrace ./cmd/millrace
	go build -trimpath -o bin/millrace-lab ./cmd/millrace-lab

setup:
	@scripts/setup.sh
	@scripts/native.sh $(NATIVE)

setup-pytorch: setup
	@scripts/pytorch.sh

$(TEXT):
	scripts/text.sh $@

lint: setup
	@scripts/lint.sh

# The kernels that OPENBLAS_CORETYPE asks for are not those of this processor.
BENCH := env -u OPENBLAS_CORETYPE bin/millrace-lab bench
# What BENCHMARKS.md has of convnet was measured with this, which was its default.
CONVNET := --model convnet --optimizer sgd --momentum 0.9 --lr 0.05 --lr-warmup 0

bench: build setup-pytorch $(TEXT)
	$(BENCH) speedup --model gpt --data $(TEXT) --batch 32 --micro-batches 16
	$(BENCH) speedup $(CONVNET) --data fashion-mnist --batch 128
	for model in "--model gpt" "$(CONVNET)" "--model mlp"; do \
	  $(BENCH) prediction $$model --batch 32 --workers 2 || exit 1; \
	  $(BENCH) prediction $$model --batch 32 --workers 4 --cores 2 || exit 1; \
	done
	$(BENCH) peers --data $(TEXT)

slow: build setup-pytorch
	$(BENCH) slow $(SLOW)
	$(BENCH) slow --plot docs/slow.svg

papers: build
	bin/millrace-lab reproduce all --results lab/results/papers
	bin/millrace-lab papers

pictures: build
	@scripts/browser.sh
	go run ./lab/pictures

gallery: build
	go run ./lab/pictures -gallery
	go run ./lab/formats > build/formats.md && cp build/formats.md docs/formats.md

site: build
	bin/millrace-lab docs --out build/site

attack: build
	go build -trimpath -o bin/attack ./lab/attack
	bin/attack $(ATTACK)
	$(if $(ATTACK),,MILLRACE_ATTACK=$(CURDIR)/lab/results/attack.json go test -count=1 -timeout 10m \
	  -run TestStrangersDoNotDisturbATraining ./cmd/millrace)

# The packages whose tests know -rapid.checks; others refuse the flag.
with-rapid = $(shell go list -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}' $(1)) \
	$(shell go list -f '{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}' $(1))

NAMESPACES := unshare --net true 2>/dev/null

soak: build
	-@scripts/setup.sh openmpi-bin mpich munge slurm-client slurmctld slurmd
	go test -count=1 -timeout 60m $(call with-rapid,./schedule/... ./sim/...) -rapid.checks=10000
	MILLRACE_SOAK=10000 go test -count=1 -timeout 60m ./run ./launch/rendezvous
	MILLRACE_LATE=1 go test -count=1 -timeout 60m ./run
	MILLRACE_SOAK=1 go test -count=1 -timeout 60m ./wire/tcp ./cmd/millrace
	go build -trimpath -o bin/faults ./lab/faults
	@if $(NAMESPACES); then bin/faults -o build/faults.json; \
	  else echo "faults are left out: no network namespaces can be made"; fi
	bin/millrace-lab run -o build/soak.hashes
	bin/millrace-lab run --processes --check build/soak.hashes
	@if $(NAMESPACES); then bin/millrace-lab run --netns --check build/soak.hashes; \
	  else echo "run --netns is left out: no network namespaces can be made"; fi
	for carrier in pipe blocking tcp; do \
	  MILLRACE_CARRIER=$$carrier go test -count=1 -timeout 60m ./run || exit 1; \
	  bin/millrace-lab run --carrier $$carrier --check build/soak.hashes || exit 1; \
	done

clean:
	rm -rf bin build runs

# make demo           sets up everything, trains a planned pipeline on real data
# make test           sets up everything, runs every test
# make help           prints these lines
#
# make build          bin/millrace and bin/millrace-lab; what is missing is installed
# make setup          installs libtorch, OpenBLAS and data, builds the native library
# make setup-pytorch  also a Python with torch, to export networks
# make clean          removes bin, build and runs
#
# make lint           gofmt, vet, staticcheck, shellcheck, clang-format, node
# make soak           random Programs, faults and launchers, for hours
# make attack         bad inputs, kills, signals, full disks, strangers on ports; ATTACK='--only kills --seed 2'
# make runs           trains the list of small runs in lab/runs; AGAINST=COMMIT compares
#
# make gallery        docs/schedules.md and its drawings, docs/cli.md, docs/formats.md
# make pictures       the pictures of the documentation, in a headless Chromium
# make site           the documentation as a static site in build/site
#
# make bench          measures what BENCHMARKS.md tells, for hours, into lab/results
# make benchmarks     BENCHMARKS.md of lab/results
# make slow           data parallelism over slow links; SLOW='--hosts 2 --rates 1gbit'
# make papers         the experiments of the four papers, into docs/papers.md

SHELL := /bin/bash
NATIVE := build/libmillrace_native.so
TEXT := build/text/kjv.txt
export CGO_ENABLED := 1
# Programs, tests and what tests build share compiled packages.
export GOFLAGS := -trimpath $(GOFLAGS)

.PHONY: help benchmarks papers pictures gallery site demo test runs build setup setup-pytorch lint bench slow soak attack clean

demo: build
	bin/millrace train --job examples/demo.yaml --overwrite

help:
	@sed -n 's/^# \(make .*\)/\1/p' $(firstword $(MAKEFILE_LIST))

# Tests of launchers and shells that are not there are skipped; those of PyTorch models fail without it.
# Tests often wait, so one package more than there are cores is tested at once.
test: setup setup-pytorch
	@scripts/browser.sh
	-@scripts/setup.sh openmpi-bin mpich zsh fish bash-completion
	@scripts/lint.sh
	go test -vet=off -p $$(($$(nproc) + 1)) -timeout 30m ./... # lint has vetted them

runs: build
	bin/millrace-lab run $(if $(AGAINST),--against $(AGAINST))

build: setup
	@mkdir -p bin
	go build -o bin/millrace ./cmd/millrace
	go build -o bin/millrace-lab ./cmd/millrace-lab

setup:
	@scripts/setup.sh
	@scripts/native.sh $(NATIVE)

setup-pytorch: setup
	@scripts/pytorch.sh

$(TEXT):
	scripts/text.sh $@

lint: setup
	@scripts/lint.sh

# OPENBLAS_CORETYPE may ask for kernels of another processor, so measurements unset it.
BENCH := env -u OPENBLAS_CORETYPE bin/millrace-lab bench
# BENCHMARKS.md's measurements of convnet use this optimizer, which was once the default.
CONVNET := --model convnet --optimizer sgd --momentum 0.9 --lr 0.05 --lr-warmup 0

RESULTS := lab/results
ORDERS := $(BENCH) orders --model gpt --data $(TEXT) --workers 2 --batch 32 --micro-batches 4
TUNED := --workers 2 --most-pipelines 2 --grid --rounds 2 --settings 4
CURVES := $(BENCH) curves --model convnet --set widths=8,16 --set convs=1 --set dense=64 --data fashion-mnist \
	--rows 16000 --eval-rows 2000 --batch 32 --lr-schedule cosine --out runs/curves
WATCHED := $(BENCH) live -o $(RESULTS)/live

bench: build setup-pytorch $(TEXT)
	$(BENCH) speedup --model gpt --data $(TEXT) --batch 64 --micro-batches 16 -o $(RESULTS)/speedup-gpt.json
	$(BENCH) speedup --model gpt --data $(TEXT) --batch 32 --micro-batches 16 -o $(RESULTS)/speedup-gpt-32.json
	$(BENCH) speedup $(CONVNET) --data fashion-mnist --batch 128 -o $(RESULTS)/speedup-convnet.json
	for n in 2 4; do \
	  cores=$$([ $$n = 2 ] || echo "--cores 2"); name=$$([ $$n = 2 ] || echo -$$n); \
	  $(BENCH) prediction $(CONVNET) --data fashion-mnist --batch 64 --workers $$n $$cores \
	    -o $(RESULTS)/prediction-convnet$$name.json || exit 1; \
	  $(BENCH) prediction --model mlp --batch 128 --workers $$n $$cores -o $(RESULTS)/prediction-mlp$$name.json || exit 1; \
	done
	$(BENCH) prediction --model gpt --data $(TEXT) --batch 32 --workers 2 -o $(RESULTS)/prediction-gpt.json
	for rival in single ddp onef1b pipe; do \
	  $(BENCH) peers --data $(TEXT) --only $$rival -o $(RESULTS)/peers-$$rival.json || exit 1; \
	done
	$(BENCH) tuner -o $(RESULTS)/tuner-convnet.json -- --model convnet --data fashion-mnist --batch 64 $(TUNED)
	$(BENCH) tuner -o $(RESULTS)/tuner-gpt.json -- --model gpt --data $(TEXT) --batch 8 $(TUNED)
	$(ORDERS) --only zb-h1,1f1b-rr -o $(RESULTS)/orders-gpt.json
	$(ORDERS) --only pb,afab,chimera,interleaved,dp -o $(RESULTS)/orders-gpt-more.json
	$(ORDERS) --wire examples/two-machines-1gbps.yaml --only pb -o $(RESULTS)/orders-wire.json
	$(BENCH) memory --model gpt --set layers=4 --set width=64 --set heads=4 --set context=64 --micro-batch 4 \
	  -o $(RESULTS)/memory-gpt.json
	$(CURVES) --lr 0.02 --only learn -o $(RESULTS)/curves-learn.json \
	  --methods sync,stash,vertical,2bw,latest,elastic:2:lr=3.8:momentum=0.81,elastic:3
	$(CURVES) --lr 0.0334 --only time --seed 11 -o $(RESULTS)/curves-time.json --methods sync,elastic:2:split,elastic:2
	for module in gpt resnet18; do \
	  $(BENCH) imported --data $(TEXT) --only $$module -o $(RESULTS)/imported-$$module.json || exit 1; \
	done
	env -u OPENBLAS_CORETYPE bin/millrace-lab processes bin/millrace -o $(RESULTS)/processes.json
	$(BENCH) p2p -o $(RESULTS)/p2p.json
	MILLRACE_RANKS=$(CURDIR)/$(RESULTS)/ranks.json go test -count=1 -timeout 30m ./run -run 'RanksGrow$$'
	$(WATCHED).json -- --model mlp --data digits --batch 32 --steps 4000 --stages 2
	$(WATCHED)-gpt.json -- --model gpt --set layers=3 --set context=64 --data $(TEXT) --batch 4 --micro-batches 2 \
	  --stages 2 --schedule 1f1b --workers 2 --steps 200 --eval-rows 8
	$(WATCHED)-convnet.json -- --model convnet --data fashion-mnist --batch 32 --micro-batches 2 --stages 2 \
	  --split conv1.0 --schedule 1f1b --workers 2 --steps 40 --eval-rows 64
	$(BENCH) shapes
	$(BENCH) bound
	go run ./lab/quick
	go run ./lab/livepage

benchmarks: build
	bin/millrace-lab benchmarks --write BENCHMARKS.md

slow: build setup-pytorch
	$(BENCH) slow $(SLOW)
	$(BENCH) slow --plot docs/slow.svg

papers: build
	MILLRACE_SOAK=1 go test -count=1 -timeout 60m ./lab/reproduce/...
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
	go build -o bin/attack ./lab/attack
	bin/attack $(ATTACK)
	$(if $(ATTACK),,MILLRACE_ATTACK=$(CURDIR)/lab/results/attack.json go test -count=1 -timeout 10m \
	  -run TestStrangersDoNotDisturbATraining ./cmd/millrace)

# The packages whose tests import rapid; tests of other packages refuse the flag -rapid.checks.
with-rapid = $(shell go list -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}' $(1)) \
	$(shell go list -f '{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}' $(1))

NAMESPACES := unshare --net true 2>/dev/null

soak: build
	-@scripts/setup.sh openmpi-bin mpich munge slurm-client slurmctld slurmd
	go test -count=1 -timeout 60m $(call with-rapid,./schedule/... ./sim/...) -rapid.checks=10000
	MILLRACE_SOAK=10000 go test -count=1 -timeout 60m ./run ./launch/rendezvous
	MILLRACE_LATE=1 go test -count=1 -timeout 60m ./run
	MILLRACE_SOAK=1 go test -count=1 -timeout 60m ./wire/tcp ./cmd/millrace
	go build -o bin/faults ./lab/faults
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

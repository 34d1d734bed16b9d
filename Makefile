# make demo   sets up everything and trains a planned pipeline on real data
# make test   sets up everything and runs every test

SHELL := /bin/bash
NATIVE := build/libmillrace_native.so
TEXT := build/text/kjv.txt
export CGO_ENABLED := 1

.PHONY: demo test build setup lint bench bench-peers soak clean

demo: build
	bin/millrace train --job examples/demo.yaml

test: setup
	go vet ./...
	go test ./...

build: setup
	@mkdir -p bin
	go build -trimpath -o bin/millrace ./cmd/millrace

setup:
	@scripts/setup.sh
	@scripts/native.sh $(NATIVE)

$(TEXT):
	scripts/text.sh $@

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	CGO_ENABLED=0 go vet ./...

bench-peers:
	@scripts/setup.sh python3-torch

bench: build bench-peers $(TEXT)
	bin/millrace bench speedup --data $(TEXT)
	bin/millrace bench prediction --data $(TEXT)
	bin/millrace bench peers --data $(TEXT)

soak: setup
	go test -count=1 -timeout 60m ./schedule ./sim ./run -rapid.checks=10000

clean:
	rm -rf bin build runs

# The commands of this repository. `make help` lists them.
SHELL := /bin/bash
GO    ?= go
BIN   := bin
PKGS  := ./...
# VERSION is what the binary says of itself; a checkout without tags says its commit.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X github.com/gatehouse-dev/gatehouse/internal/rest/measure.commit=$(REVISION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/gatehouse
	@mkdir -p $(BIN)
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/gatehouse ./cmd/gatehouse

.PHONY: run
run: build ## Start everything on the embedded default: server, two bouncers, a demo application
	$(BIN)/gatehouse dev

.PHONY: test
test: ## Run every test on both stores and against real peers; names those that are missing
	@tools/missing
	GATEHOUSE_TEST_FULL=1 $(GO) test -timeout 30m $(PKGS)
	$(MAKE) --no-print-directory browser

.PHONY: browser
browser: ## Test the console in Chromium (skipped where there is none)
	cd e2e && $(GO) test -count=1 -timeout 15m ./...

.PHONY: slow
slow: ## List the packages whose tests take over ten seconds in the inner loop
	tools/slow 10 $(PKGS)

.PHONY: check
check: ## Vet, linters, formatting, dead code and the structure test
	$(GO) vet $(PKGS)
	$(MAKE) --no-print-directory $(BIN)/golangci-lint $(BIN)/deadcode
	$(BIN)/golangci-lint run
	.ci/deadcode $(BIN)/deadcode
	$(GO) test -run '^TestStructure' .

.PHONY: fuzz
fuzz: ## Give each fuzz target ten seconds of new inputs (CI runs their seeds, as tests)
	.ci/fuzz 10s

.PHONY: bench
bench: build $(BIN)/opa $(BIN)/caddy ## Measure against a stock OPA, nginx and Caddy, side by side
	$(GO) run ./bench -gatehouse $(BIN)/gatehouse -opa $(BIN)/opa -caddy $(BIN)/caddy

.PHONY: bench-webhooks
bench-webhooks: ## Measure webhooks: 100,000 events to 50 receivers, some of them dead
	$(GO) run ./bench -only webhooks

.PHONY: web
web: ## Check and build the console of web/ into internal/webui/dist (needs npm; the Go build does not)
	@command -v npm >/dev/null || { echo "npm is not installed: the console that is in the repository stays as it is"; exit 1; }
	cd web && npm ci --ignore-scripts --no-audit --no-fund && npm run schema && npm run notices && npm run check && npm run build

.PHONY: pictures
pictures: ## Retake the screenshots of the README and the docs (needs Chromium)
	cd e2e && GATEHOUSE_E2E_DOCS=$(CURDIR)/docs/images $(GO) test -count=1 -run '^TestPictures$$' ./...

.PHONY: docs
docs: ## Regenerate docs/configuration.md, docs/permissions.md and the golden OpenAPI document
	$(GO) test ./internal/app -run TestConfigurationReference -update
	$(GO) test ./internal/api -run Document -update

.PHONY: notices
notices: ## Regenerate THIRD_PARTY_NOTICES.md from the modules in the binary
	cd tools && $(GO) build -o ../$(BIN)/notices ./notices
	$(BIN)/notices > THIRD_PARTY_NOTICES.md

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN)

$(BIN)/opa:
	cd tools && $(GO) build -o ../$(BIN)/opa github.com/open-policy-agent/opa

$(BIN)/caddy:
	cd tools && $(GO) build -o ../$(BIN)/caddy github.com/caddyserver/caddy/v2/cmd/caddy

$(BIN)/idp:
	cd tools && $(GO) build -o ../$(BIN)/idp github.com/zitadel/oidc/v3/example/server

$(BIN)/pebble:
	cd tools && $(GO) build -o ../$(BIN)/pebble github.com/letsencrypt/pebble/v2/cmd/pebble

$(BIN)/pebble-challtestsrv:
	cd tools && $(GO) build -o ../$(BIN)/pebble-challtestsrv github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv

$(BIN)/traefik:
	tools/traefik/build $(BIN)/traefik

$(BIN)/golangci-lint:
	cd tools/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/deadcode:
	cd tools/lint && $(GO) build -o ../../$(BIN)/deadcode golang.org/x/tools/cmd/deadcode

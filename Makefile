# Regent's make targets. `make help` lists them.

SHELL := /bin/sh
GO    ?= go

# All that is compiled has the same flags, so that nothing is compiled twice: programs, tools, tests, the linter's view of them, and what is released.
# Without paths a checkout in another directory finds all of it in the build cache. Only the race detector links with cgo: cgo is what Go takes it for
# where it finds a C compiler.
CGO := $(shell $(GO) env CGO_ENABLED)
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath -buildvcs=%,$(GOFLAGS)) -trimpath -buildvcs=false)

# The version of the build. Clients derive the version skew, and upstream the defaults of its feature gates, from
# gitVersion, so it begins with the version of the Kubernetes libraries (k8s.io/* v0.37.2).
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT    ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
TREESTATE ?= $(shell test -z "$$(git status --porcelain 2>/dev/null)" && echo clean || echo dirty)
# The commit's date, not today's: the same commit gives the same binary.
DATE      ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)

version = k8s.io/component-base/version
LDFLAGS = -s -w -X $(version).gitVersion=v1.37.2$(1) -X $(version).gitMajor=1 -X $(version).gitMinor=37 \
	-X $(version).gitCommit=$(COMMIT) -X $(version).gitTreeState=$(TREESTATE) -X $(version).buildDate=$(DATE)

# Modules of their own: below pkg, what other programs take without the server (docs/RELEASING.md), elsewhere tools, tests and examples, so that what
# they need stays out of the product's go.mod.
MODULES   = $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './bin/*' -not -path './.*' | sort))
LIBRARIES = $(filter pkg/%,$(MODULES))

# go test with the race detector, if there is a C compiler.
RACE     ?= $(if $(filter 1,$(CGO)),-race)
racetest  = CGO_ENABLED=$(CGO) $(GO) test $(RACE)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9\/-]+:.*## / { line = sprintf("  make %-18s", $$1); n = split($$2, word, " "); \
	  for (i = 1; i <= n; i++) { if (length(line) + 1 + length(word[i]) > 120) { print line; line = sprintf("%25s", "") } \
	  line = line " " word[i] } print line }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## run a whole shard on this machine: two replicas, one etcd (several shards: make run ARGS="--shards=3"; whole logs: make run ARGS=-v)
	@bin/regent dev $(ARGS)

# What tests start. It is built before them, so that none waits for a compiler.
programs = ./test/tools/embedded ./test/e2e/candidate ./test/e2e/flood ./test/e2e/issuer ./examples/fenced-controller
started  = bin/regent bin/faulty bin/etcd bin/etcdctl bin/kubectl bin/selectors bin/apiserver bin/leader bin/widgets bin/packed bin/versitygw
prove    = $(GO) run ./test/tools/prove

.PHONY: test
test: bin/programs $(started) ## run all tests, what starts goroutines with the race detector if there is a C compiler (some: make test ONLY="pkg/election/... pkg/clusters" RUN=TestName)
	@REGENT=$(CURDIR)/bin/regent $(prove) test -race=$(if $(RACE),true,false) $(if $(RUN),-run '$(RUN)') $(ONLY)

.PHONY: measure
measure: bin/programs $(started) ## run all tests, and write into docs/reference/tests.md what each takes
	@REGENT=$(CURDIR)/bin/regent $(prove) test -race=$(if $(RACE),true,false) -table

.PHONY: plan
plan: ## say what .ci/run does with this change, and for how long (SINCE=commit before the change)
	@$(prove) plan
.PHONY: parts
parts:
	@$(prove) parts -minutes $(MINUTES)

# What has a shorter form in make test, for the CPU that it takes: .ci/run runs those that a change touches, or one in turn (test/tools/prove/parts.go).
LONG = long-properties long-scenarios long-faults long-workspaces long-definitions long-sample long-manager long-programs long-leases long-kcm
.PHONY: long $(LONG)
long: $(LONG) ## run the long forms of tests, one after the other: each is a target, too
long-properties: bin/programs bin/selectors bin/packed ## each property, of hundreds of random cases
	@$(prove) test -race=false -properties -cases 300
long-scenarios: bin/regent bin/etcd bin/kubectl bin/faulty ## a leader is paused two hundred times, and killed again and again
	$(GO) test -count=1 -timeout 30m ./test/e2e -run 'PausedLeaderWritesNothing|WorkspacesLandOnAllShards|IsBoundByTheNextLeader|IsEstablishedByTheNextLeader' \
	-rounds=200 -workspaces=90 -binding-deaths=10 -definition-deaths=10
long-faults: bin/regent bin/etcd bin/kubectl bin/faulty ## each fault in each mode of election, under each policy, to each kind of member of an etcd
	$(GO) test -count=1 -timeout 30m -parallel 3 ./test/e2e -run 'EveryFault|WhateverNetworkIsCut|AMemberOfEtcdThatFails|EveryReplicaLeadsAShare' -all
long-workspaces: bin/regent bin/etcd bin/kubectl ## a thousand workspaces come and go
	$(GO) test -count=1 -timeout 20m ./test/e2e -run 'ManyWorkspacesComeAndGo' -many=1000
long-definitions: ## a thousand terms with definitions
	$(GO) test -count=1 -timeout 30m ./pkg/server -run 'TermsLeaveNothingBehindOfDefinitions' -terms=1000
long-sample: bin/apiserver ## a thousand terms of a sample server
	cd test/embed && $(GO) test -count=1 -timeout 20m -run 'TermsOfTheSampleLeaveNothing' -terms=1000
long-manager: ## a thousand terms of a manager
	cd pkg/election/perterm && GOWORK=$(CURDIR)/test/libraries.work $(GO) test -count=1 -timeout 20m -run 'NothingGrowsOverTerms' -terms=1000
long-programs: ## a thousand terms of a leader, a drop-in and a manager in which anything fails at random (others: SEED=2)
	cd pkg/election && GOWORK=$(CURDIR)/test/libraries.work $(GO) test -count=1 -timeout 20m ./leader ./clientgo -run 'AtRandom' -terms=1000 -seed=$(or $(SEED),1)
	cd pkg/election/perterm && GOWORK=$(CURDIR)/test/libraries.work $(GO) test -count=1 -timeout 20m -run 'AtRandom' -random-terms=1000 -seed=$(or $(SEED),1)
long-leases: bin/etcd bin/kube-apiserver ## a kube-apiserver does with Leases what the store of pkg/election/electiontest and Regent do
	cd test/bench && $(GO) test -count=1 -timeout 20m -run 'DoesWhatElectorsTakeForGranted' .
long-kcm: bin/etcd bin/kubernetes ## a kube-controller-manager loses its Lease a hundred times, is killed, and is paused (examples/kube-controller-manager)
	cd test/bench && $(GO) test -v -count=1 -timeout 30m -run 'AKubeControllerManager' . -kcm $(CURDIR)/bin/kubernetes/bin

.PHONY: e2e
e2e: ## run the scenarios with real processes only (one, in a mode of election, on an etcd of three members: make e2e RUN=TestName MODE=for-life ETCD=3)
	$(GO) test -v -count=1 -timeout 40m -parallel 4 ./test/e2e $(if $(RUN),-run '$(RUN)') $(if $(MODE),-mode=$(MODE)) $(if $(ETCD),-etcd=$(ETCD))

# Not part of make test: it takes minutes, and both cores.
.PHONY: upgrade
upgrade: bin/regent bin/leader bin/before/regent bin/before/leader bin/etcd bin/etcd-before bin/etcdctl bin/kubectl ## roll an installation under load from the release before to this tree, and back (some: make upgrade RUN=TestName; with less: RATE=100 WATCHES=100)
	$(GO) test -v -count=1 -timeout 40m ./test/upgrade $(if $(RUN),-run '$(RUN)') $(if $(RATE),-rate=$(RATE)) $(if $(WATCHES),-watches=$(WATCHES))
	$(GO) test -v -count=1 -timeout 10m ./test/releases $(if $(RUN),-run '$(RUN)') -before=before/regent

# Once for each release, which makes the data itself: docs/RELEASING.md.
.PHONY: release-data
release-data: bin/etcd bin/etcdctl ## have a release store what make test reads from then on: make release-data RELEASE=v0.1.0 (docs/RELEASING.md)
	@BEFORE="$$(awk '$$1 == "$(RELEASE)" { print $$1 " " $$2 }' test/releases/releases.txt)" && test -n "$$BEFORE" || \
	{ echo "RELEASE=$(RELEASE) is none of test/releases/releases.txt" >&2; exit 1; } && BEFORE="$$BEFORE" test/upgrade/before.sh regent
	$(GO) test -v -count=1 -timeout 10m ./test/releases/fill -release=$(RELEASE)
	$(modules) api -version $(RELEASE)

.PHONY: browser
browser: bin/regent bin/faulty ## test the page in a browser only, and leave screenshots in bin/screenshots (one test: make browser RUN=TestName)
	cd test/browser && $(GO) test -v -timeout 10m $(if $(RUN),-run '$(RUN)')

# Not part of make test, nor of make lint: the modules that Kubernetes' specs need take minutes to compile.
.PHONY: alerts
alerts: bin/promtool ## test the rules of deploy/prometheus with Prometheus' own tool
	cd test/tools/promtool && $(GO) test -count=1 ./...

.PHONY: conformance
conformance: build bin/golangci-lint ## run Kubernetes' own specs for custom resources, and compare with docs/CONFORMANCE.md (some: make conformance RUN='^FieldValidation')
	cd test/tools/conformance && $(GO) test -v -count=1 -timeout 90m . $(if $(RUN),-only '$(RUN)')
	cd test/tools/conformance && $(CURDIR)/bin/golangci-lint run --allow-parallel-runners ./...

modules = cd test/tools/modules && $(GO) run .

# Not part of make test: each version of Kubernetes is compiled.
.PHONY: compat
compat: ## test the modules below pkg with the newest patches of the Kubernetes versions that they support (some: make compat KUBERNETES=0.36 LIBRARY=pkg/election)
	$(modules) compat $(if $(KUBERNETES),-kubernetes '$(KUBERNETES)') $(if $(LIBRARY),-library '$(LIBRARY)')

.PHONY: versions
versions: ## give all modules that are tested the versions of the root, so that nothing is compiled in two of them
	$(modules) versions

.PHONY: release-check
release-check: ## make a release in a scratch directory, install the server from it and build programs with each module below pkg (QUICK=1: do not compile the server)
	$(modules) check $(if $(QUICK),-quick)

.PHONY: release
release: ## make the commit and the tags of a release, and what is handed out, below bin/dist: make release VERSION=v0.2.0 (docs/RELEASING.md)
	$(modules) release -version '$(VERSION)'

.PHONY: module-path
module-path: ## give all modules another path, which whoever hosts the repository decides: make module-path TO=example.org/team/regent
	$(modules) rename -path '$(TO)'

.PHONY: weight
weight: ## print what the module graph of programs gains with pkg/election: make weight SINCE=commit LIBRARY=pkg/election/perterm PROGRAMS="kcp=directory ..." (docs/RELEASING.md)
	$(modules) weight $(if $(LIBRARY),-library '$(LIBRARY)') $(if $(SINCE),-since '$(SINCE)') $(foreach p,$(PROGRAMS),-program '$(p)')

.PHONY: check
check: lint generated tidy ## check style, generated code and module files

.PHONY: build
build: bin/regent bin/kubectl ## build bin/regent, a kubectl to talk to it, and its plugins `kubectl regent` and `kubectl ws`
	@for plugin in regent ws; do ln -sf regent bin/kubectl-$$plugin; ln -sf regent bin/kubectl_complete-$$plugin; done

# Always asked, never stale: go build knows better than make what has changed.
.PHONY: bin/programs bin/regent bin/faulty bin/etcd bin/etcd-before bin/etcdctl bin/kubectl bin/promtool bin/selectors bin/kube-apiserver bin/kubernetes bin/golangci-lint bin/versitygw
bin/regent:
	@$(GO) build -ldflags '$(call LDFLAGS,+regent.$(VERSION))' -o $@ ./cmd/regent
bin/faulty: ## build a server with controllers that misbehave, to see how they are found (docs/CLI.md)
	@$(GO) build -ldflags '$(call LDFLAGS,+faulty.$(VERSION))' -o $@ ./test/e2e/faulty
bin/programs:
	@mkdir -p bin && $(GO) build -ldflags '-s -w' -o bin/ $(programs)
.PHONY: $(addprefix bin/,$(notdir $(programs)))
$(addprefix bin/,$(notdir $(programs))):
	@mkdir -p bin && $(GO) build -ldflags '-s -w' -o $@ $(filter %/$(@F),$(programs))
.PHONY: bin/apiserver bin/leader bin/widgets
bin/apiserver bin/leader bin/widgets:
	@cd examples/$(@F) && $(GO) build -ldflags '-s -w' -o ../../$@ ./cmd
bin/etcd:
	@mkdir -p bin && GO='$(GO)' test/tools/etcd/build.sh $@
bin/etcd-before: ## build an etcd of the minor version before that which is embedded
	@cd test/tools/etcdbefore && $(GO) build -ldflags '-s -w' -o ../../../$@ .
# The programs of the release before, in its own directory, built once: bin/before leads there.
.PHONY: bin/before/regent bin/before/leader
bin/before/regent bin/before/leader:
	@test/upgrade/before.sh $(@F)
bin/etcdctl: ## build etcdctl and etcdutl, which back up and restore what is stored (docs/BACKUP.md)
	@mkdir -p bin && cd test/tools/etcdctl && $(GO) build -ldflags '-s -w' -o ../../../$@ . && ln -sf etcdctl ../../../bin/etcdutl
bin/kubectl:
	@cd test/tools/kubectl && $(GO) build -ldflags '$(call LDFLAGS,)' -o ../../../$@ .
bin/versitygw: ## build a server of S3, which backups are copied to in tests
	@mkdir -p bin && cd test/tools/versitygw && $(GO) build -ldflags '-s -w' -o ../../../$@ .
# Without service discovery, which would be a fifth of the build.
bin/promtool:
	@cd test/tools/promtool && $(GO) build -tags remove_all_sd -o ../../../$@ github.com/prometheus/prometheus/cmd/promtool
bin/selectors:
	@cd test/tools/promtool && $(GO) build -tags remove_all_sd -o ../../../$@ ./selectors
bin/kube-apiserver: ## build Kubernetes' own API server, to measure beside it
	@cd test/tools/kubernetes && $(GO) build -ldflags '$(call LDFLAGS,)' -o ../../../$@ .
bin/kubernetes: ## build Kubernetes' controller manager and API server with our packages, bin/kubernetes/bin (examples/kube-controller-manager)
	@GO='$(GO)' examples/kube-controller-manager/adopt.sh $@
bin/golangci-lint:
	@cd test/tools/lint && $(GO) build -o ../../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# What is handed on is below $(OUT). The same commit, and the same Go, give the same bytes: Go records no paths and no state of the repository,
# and no C compiler takes part.
OUT    ?= bin/dist
ARCHES ?= amd64 arm64
pack    = cd test/tools/pack && $(GO) run . $(1) -tree ../../.. -version '$(VERSION)' -revision '$(COMMIT)' -date '$(DATE)'

.PHONY: image
image: static ## build an OCI image for amd64 and arm64, without a container engine: bin/dist/regent-image.tar
	@out=$$(realpath $(OUT)) && $(call pack,image) -out "$$out/regent-image.tar" $(foreach a,$(ARCHES),$(a)="$$out/linux-$(a)/regent")

.PHONY: dist
dist: static ## build archives for linux on amd64 and arm64, the chart, and a manifest for krew (URL=where the archives will be), with bills of materials and checksums: bin/dist
	@out=$$(realpath $(OUT)) && $(foreach a,$(ARCHES),( \
	$(call pack,archive) -out "$$out/regent_$(VERSION)_linux_$(a).tar.gz" $(a)="$$out/linux-$(a)/regent" ) && ( \
	$(call pack,sbom) -out "$$out/regent_$(VERSION)_linux_$(a).cdx.json" $(a)="$$out/linux-$(a)/regent" ) && ) \
	( $(call pack,chart) -out "$$out/regent_$(VERSION)_chart.tgz" ) && \
	( $(call pack,krew) -out "$$out/regent_$(VERSION)_krew.yaml" $(if $(URL),-url '$(URL)') $(foreach a,$(ARCHES),$(a)="$$out/regent_$(VERSION)_linux_$(a).tar.gz") ) && \
	cd "$$out" && sha256sum regent_$(VERSION)_linux_*.tar.gz regent_$(VERSION)_linux_*.cdx.json regent_$(VERSION)_chart.tgz regent_$(VERSION)_krew.yaml > SHA256SUMS

.PHONY: static
static:
	@$(foreach a,$(ARCHES),CGO_ENABLED=0 GOOS=linux GOARCH=$(a) \
	$(GO) build -ldflags '$(call LDFLAGS,+regent.$(VERSION))' -o $(OUT)/linux-$(a)/regent ./cmd/regent &&) true
	@out=$$(realpath $(OUT)) && cd test/tools/etcdctl && $(foreach a,$(ARCHES),CGO_ENABLED=0 GOOS=linux GOARCH=$(a) \
	$(GO) build -ldflags '-s -w' -o "$$out/linux-$(a)/etcdctl" . &&) true

# What test/deploy looks at: made here and from a copy elsewhere, of a version that is none.
.PHONY: bin/packed
bin/packed:
	@mkdir -p $@/here $@/there && for place in here there; do \
	from=. && if [ $$place = there ]; then from=$$(mktemp -d) && trap 'rm -rf "$$from"' EXIT && mkdir -p "$$from/test/tools" && \
	cp -R Makefile go.mod go.sum LICENSE *.md docs.go cmd pkg deploy docs "$$from" && cp -R test/tools/pack test/tools/etcdctl "$$from/test/tools"; fi && \
	$(MAKE) -s --no-print-directory -C "$$from" image dist OUT="$(CURDIR)/$@/$$place" ARCHES="$$($(GO) env GOARCH)" VERSION=v0.0.0-test \
	COMMIT=0123456789abcdef0123456789abcdef01234567 TREESTATE=clean DATE=2026-01-31T00:00:00Z || exit 1; done

# Libraries are linted with the versions of the root, in which all that they import is compiled already.
linted = . $(filter examples/%,$(MODULES)) test/bench test/browser test/deploy test/embed test/tools/modules test/tools/pack
.PHONY: lint
lint: bin/golangci-lint
	@for m in $(LIBRARIES); do (cd $$m && echo "$$m: golangci-lint" && GOWORK=$(CURDIR)/test/libraries.work $(CURDIR)/bin/golangci-lint run --allow-parallel-runners ./...) || exit 1; done
	@for m in $(linted); do (cd $$m && echo "$$m: golangci-lint" && $(CURDIR)/bin/golangci-lint run --allow-parallel-runners ./...) || exit 1; done

.PHONY: figures
figures: ## say which commits the docs' figures are of, if they are older than the newest release
	@$(GO) run ./test/tools/figures README.md CONTRIBUTING.md test/bench/README.md $(filter-out docs/STATUS.md,$(wildcard docs/*.md))

.PHONY: fmt
fmt: ## format Go files, and wrap their comments and the pages of docs at 120 columns
	gofmt -w *.go cmd examples pkg test
	$(GO) run ./test/tools/wrap docs.go cmd examples pkg test docs README.md CONTRIBUTING.md CHANGELOG.md CODE_OF_CONDUCT.md GOVERNANCE.md

.PHONY: generate
generate: ## write generated code and docs/reference anew
	$(GO) run ./test/tools/served | (cd test/tools/openapi && $(GO) run . ../../..)
	$(GO) run ./test/tools/reference .
	$(GO) test ./cmd/server/command -count=1 -run TestTheReferenceHasEachCommandAndFlag -update

# Generated into a copy, so that checking changes nothing.
.PHONY: generated
generated:
	@new=$$(mktemp -d) && trap 'rm -rf "$$new"' EXIT && \
	cp -R go.mod go.sum pkg test docs deploy "$$new" && \
	$(GO) run ./test/tools/served | (cd test/tools/openapi && $(GO) run . "$$new") && \
	diff -r pkg/server/apis/openapi "$$new/pkg/server/apis/openapi" >&2 && \
	$(GO) run ./test/tools/reference "$$new" && diff -r docs/reference "$$new/docs/reference" >&2 && \
	$(GO) test ./cmd/server/command -run TestTheReferenceHasEachCommandAndFlag >&2 || \
	{ echo "what is generated is out of date: run make generate" >&2; exit 1; }

.PHONY: tidy
tidy:
	@for m in . $(MODULES); do (cd $$m && echo "$$m: $(GO) mod tidy -diff" && $(GO) mod tidy -diff) || exit 1; done

# kcp's test is compiled in its checkout, with its own modules.
.PHONY: load
load: ## run kcp's own load test, as it is, against an installation of three shards: make load KCP=<checkout of kcp> (half an hour; less: LOAD='-load-workspaces=1000 -load-trees=flat')
	@test -d '$(KCP)/test/load' || { echo "KCP='$(KCP)' has no test/load: give a checkout of kcp, of 2026-08 or later" >&2; exit 1; }
	@mkdir -p bin && cd '$(KCP)/test/load' && GOWORK=off $(GO) test -c -o '$(CURDIR)/bin/kcp-load' ./testing
	cd test/bench && $(GO) test -run '^$$' -bench 'KcpLoad$$' -benchtime 1x -timeout 180m . -kcp-load='$(CURDIR)/bin/kcp-load' $(LOAD)

.PHONY: bench
bench: ## measure failover (beside others; in each mode of election; of leaders that hang, are large or cut off; what users notice), idle cost, start, memory, fencing, supervision and a thousand terms (more than two hours; less: make bench BENCH="-kills=9 -failovers=2 -before=9s")
	cd test/bench && $(GO) test -run '^$$' -bench . -skip 'Kcp' -benchtime 1x -timeout 240m . $(BENCH)
	$(GO) test -run '^$$' -bench . -benchtime 3x -timeout 30m ./test/e2e
	cd pkg/election && $(GO) test -run '^$$' -bench . -benchtime 10x -timeout 30m ./control/supervisor
	$(GO) test -run '^$$' -bench . -benchtime 10x -timeout 30m ./pkg/server
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./pkg/server/storage ./pkg/server/custom
	$(GO) test -run TestTermsLeaveNothingBehind -v -count=1 -timeout 30m ./pkg/server -terms=1000

.PHONY: chaos
chaos: ## run the long forms: many random scripts, fuzzing, the scenarios again and again (CHAOS=minutes of fuzzing a target)
	cd pkg/election && $(racetest) -count=1 -timeout 30m . -run 'InAnySequenceOfFaults' -rapid.checks=5000
	cd pkg/election && $(GO) test -count=1 -timeout 30m . -run 'NoTwoWorkInOneRange' -faults=2
	cd pkg/election && $(GO) test -count=1 -timeout 30m ./ranges -run 'HoweverTheNumberChanges' -more-faults=1
	cd pkg/election && $(GO) test -count=1 -timeout 30m ./ranges -run 'WhateverTheNumber' -rapid.checks=5000
	$(racetest) -count=1 -timeout 30m ./pkg/server/terms -run 'WhateverControllersDo' -rapid.checks=5000
	$(racetest) -count=1 -timeout 60m ./pkg/server -run 'ARightThatNobodyHad' -sequences=2000 -rapid.checks=2000
	cd pkg/election && $(GO) test ./fence -run '^$$' -fuzz FuzzParse -fuzztime $(or $(CHAOS),1)m
	cd pkg/election && $(GO) test . -run '^$$' -fuzz FuzzPresence -fuzztime $(or $(CHAOS),1)m
	cd pkg/election && $(GO) test ./detect -run '^$$' -fuzz FuzzWhatALeaderSends -fuzztime $(or $(CHAOS),1)m
	cd pkg/election && $(GO) test ./detect -run '^$$' -fuzz FuzzWhatAStandbySends -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server/routing -run '^$$' -fuzz FuzzNoURLEscapesItsCluster -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server -run '^$$' -fuzz FuzzNobodyIsAnsweredOutsideOfTheirCluster -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/clusters -run '^$$' -fuzz FuzzStorageKeyStaysInItsCluster -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/clusters -run '^$$' -fuzz FuzzAClusterIsNamedAsUpstreamHasIt -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server/apis -run '^$$' -fuzz FuzzWhatIsStoredAsJSON -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server/routing -run '^$$' -fuzz FuzzSplitPath -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/clusters -run '^$$' -fuzz FuzzKeysOfTwoClustersNeverMeet -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server/custom -run '^$$' -fuzz FuzzWhatADefinitionSays -fuzztime $(or $(CHAOS),1)m
	$(GO) test -count=1 -timeout 30m ./pkg/server/custom -run NoSchemaCrashes -rapid.checks=50000
	$(GO) test ./pkg/server/pki -run '^$$' -fuzz FuzzKeyFiles -fuzztime $(or $(CHAOS),1)m
	$(GO) test ./pkg/server/pki -run '^$$' -fuzz FuzzKubeconfig -fuzztime $(or $(CHAOS),1)m
	$(racetest) -count=1 -timeout 30m ./pkg/server/storage -run 'TheirTermsOnly' -rapid.checks=3000
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'TermsNeverGoBack' -chaos=10m
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'AnInstallationUnderRandomFaults' -chaos=10m
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'WorkspacesMoveUnderRandomFaults' -chaos=10m
	$(GO) test -v -count=1 -timeout 90m ./test/e2e -run 'AMoveThatIsStruck' -move-faults=110
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'WorkspacesLandOnAllShards' -workspaces=300
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'AFrontServesWhicheverShardIsDown' -shard-down=60s
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'PausedLeader' -rounds=1000
	$(GO) test -v -count=1 -timeout 30m ./test/e2e -run 'SomebodyLeadsSoon' -outages=60s,125s,200s,480s
	$(GO) test -v -count=1 -timeout 30m -parallel 4 ./test/e2e -mode=coordinated
	$(GO) test -v -count=1 -timeout 30m -parallel 4 ./test/e2e -mode=for-life
	$(GO) test -v -count=1 -timeout 30m -parallel 4 ./test/e2e -etcd=3
	$(GO) test -v -count=1 -timeout 60m -parallel 5 ./test/e2e -run 'AMemberOfEtcd' -member-rounds=20 -member-fault=30s
	$(GO) test -v -count=5 -timeout 90m -parallel 4 ./test/e2e/...

# Modules of their own are among them, with the versions in which all is compiled already.
mutated = ./pkg/server/storage ./pkg/election $(addprefix ./pkg/election/,internal/lease control/supervisor control fence leader clientgo join detect perterm etcdfence)
.PHONY: mutate
mutate: ## break the product on purpose, one change at a time, and tell which the tests let pass: docs/TESTS.md (N=changes of each package, SEED=which, MUTATE=packages)
	GOWORK=$(CURDIR)/test/libraries.work $(GO) run ./test/tools/mutate -go '$(GO)' -n $(or $(N),40) -seed $(or $(SEED),1) $(or $(MUTATE),$(mutated))

.PHONY: clean
clean: ## remove what was built and the data of make run
	rm -rf bin .regent

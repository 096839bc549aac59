# The two commands that matter: `make demo` and `make test`. Each does all the set-up it needs.
PYTHON ?= python3
ENV := .venv/.installed
PEERS := .venv-peers/.installed

.PHONY: help demo test check peers bench browser lock clean
help:           ## Show this help
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(ENV)    ## Train a Vision Transformer on handwritten digits, from scratch, and measure it
	.venv/bin/vitrail train digits

test: $(ENV) browser    ## Run the tests
	.venv/bin/pytest -n auto --maxprocesses 4 --dist worksteal

# Debian's Chromium, which the tests open the report in; without it those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	|| if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; \
	then apt-get install -y -qq chromium >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }; \
	elif sudo -n true 2>/dev/null && command -v apt-get >/dev/null; \
	then sudo apt-get update -qq && sudo apt-get install -y -qq chromium >/dev/null; \
	else echo "No Chromium, and no right to install it: the tests that open the report in a browser are skipped."; fi

check: $(ENV)   ## Format, lint and type checks
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

peers: $(PEERS) ## Compare with timm, vit-pytorch and torchvision, in an environment of their own
	.venv-peers/bin/pytest peers

bench: $(PEERS) ## Measure speed beside the peers
	.venv-peers/bin/python bench/forward.py

lock: $(ENV) $(PEERS)   ## Pin what is installed now
	.venv/bin/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt
	.venv-peers/bin/python -m pip freeze --exclude-editable | sed -E 's/\+(cpu|cu[0-9]+)$$//' > constraints-peers.txt

clean:          ## Remove the environments and caches
	rm -rf .venv .venv-peers .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# A stamp, so that a half-made environment is made again.
$(ENV): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(PEERS): pyproject.toml constraints-peers.txt
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt -e ".[peers]"
	touch $@

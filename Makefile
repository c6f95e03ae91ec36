# Everything is done by dev.py, which also sets itself up; these are its short names.
SHELL := bash
PYTHON ?= python3

.PHONY: run test check lock bench crash faults cuts screenshot
run:
	$(PYTHON) dev.py serve
test:
	$(PYTHON) dev.py test
check:
	$(PYTHON) dev.py check

# Rebuilds both lock files for every Python and platform at once, keeping versions that still fit; all newest: make lock UPGRADE=--upgrade
# pydantic: aiogram wants it below 2.14, genai-prices on Python 3.15 above; until they agree the locks serve 3.11 to 3.14.
LOCK = .venv/bin/python -m uv pip compile pyproject.toml <(printf 'hatchling\neditables\n') --overrides <(echo 'pydantic<2.14') --quiet $(UPGRADE) \
	--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
lock:
	$(PYTHON) dev.py setup
	.venv/bin/python -m pip install --quiet 'uv>=0.13'
	$(LOCK) -o requirements.lock
	$(LOCK) --extra dev -c requirements.lock -o requirements-dev.lock

# Beside raw psycopg, pgqueuer and procrastinate; one measure, another size: make bench BENCH='drain --rows 10000 --runs 3'
bench:
	$(PYTHON) dev.py setup --dev
	.venv/bin/python -m benchmarks $(BENCH)

# The engine under fire, replicas with schedules, cancels that race, and renewals due at once; another size or seed: make crash CRASH='--followups 2000 --seed 7'
crash:
	$(PYTHON) dev.py setup --dev
	.venv/bin/python -m tests.crash $(CRASH)
	.venv/bin/python -m tests.replicas $(REPLICAS)
	.venv/bin/python -m tests.races $(RACES)
	.venv/bin/python -m tests.rush $(RUSH)

# A thousand schedules of faults on both networks; one of them again: make faults FAULTS='--seed 17 --schedules 1'
faults:
	$(PYTHON) dev.py setup --dev
	.venv/bin/python -m tests.faults $(FAULTS)

# A widget's visitors, cut off in a thousand ways; another size or seed: make cuts CUTS='--disturbances 200 --seed 7'
cuts:
	$(PYTHON) dev.py setup --dev
	.venv/bin/python -m tests.cuts $(CUTS)

# The picture in README is taken by the browser test itself.
screenshot:
	VUELVO_TEST_SCREENSHOT=$(CURDIR)/docs/widget.png $(PYTHON) dev.py test tests/app/test_browser.py

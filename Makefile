# make run      install what is missing, sample a program, show the result
# make test     install what is missing, run all tests
# make bench    measure the overhead
#
# Everything is installed below this folder (.venv, .venv-pypy, .node), but
# for Debian's packages, of which the missing ones are named before.

SHELL := /bin/bash
PYPY := pypy3
PYTHON := python3

APP := benchmarks/programs/gcbench.py 10
RATE := 128k
PROFILE := app.vmprof

INTEGRATION := $(shell find vmprof-integration -name '*.py' -o -name '*.[ch]' \
	-o -name '*.toml' -o -name '*.pth' -o -name '*.rst')
CONVERTER := $(shell find converter -name '*.py' -o -name '*.toml')
# folders, too: they change when a file is removed
RPYTHON := rpython/tree.py rpython/python2.py \
	$(shell find rpython/patches rpython/added 2>/dev/null) \
	$(filter %.c %.h,$(INTEGRATION))

.PHONY: run test bench lint clean
.DELETE_ON_ERROR:

run: .build/pypy .build/python
	.venv-pypy/bin/pypy3 -m vmprof --allocation-sampling $(RATE) -o $(PROFILE) $(APP)
	.venv-pypy/bin/pypy3 -m vmprof_allocation report --limit 15 $(PROFILE)
	.venv/bin/vmprof-convert $(PROFILE) -o $(PROFILE).json.gz
	@echo
	@echo "Look at it in the Firefox Profiler:  .venv/bin/vmprof-convert $(PROFILE) --view"

test: .build/pypy .build/python .build/test .build/node \
		.build/python2 .build/rpython/tree .build/rpython/pristine
	.venv/bin/ruff check .
	.venv/bin/mypy vmprof-integration/vmprof_allocation
	.venv/bin/mypy converter/vmprof_convert
	.venv/bin/mypy rpython/python2.py rpython/tree.py
	.venv/bin/pytest tests

bench: .build/pypy .build/bench
	.venv/bin/python benchmarks/overhead.py

clean:
	rm -rf .build .venv .venv-pypy .node

# What has to be there already: an interpreter that can make environments, of
# each kind, a C compiler, and patch.  Installed with apt-get where that is
# possible.
.build/system:
	@mkdir -p .build
	@need=; \
	$(PYPY) -c 'import ensurepip' 2>/dev/null || need="$$need pypy3 pypy3-venv"; \
	$(PYTHON) -c 'import ensurepip, sys; assert sys.version_info >= (3, 9)' \
		2>/dev/null || need="$$need python3 python3-venv"; \
	{ command -v cc && echo 'int main(void) { return 0; }' | \
		cc -x c -o /dev/null - && echo '#include <signal.h>' | \
		cc -x c -fsyntax-only -; } >/dev/null 2>&1 || \
		need="$$need gcc libc6-dev"; \
	command -v patch >/dev/null || need="$$need patch"; \
	if [ -n "$$need" ]; then \
		echo "missing:$$need"; \
		if ! command -v apt-get >/dev/null; then \
			echo "please install what these packages of Debian's hold"; exit 1; \
		fi; \
		root=; [ $$(id -u) = 0 ] || root=sudo; \
		$$root apt-get update -q && $$root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -q -y --no-install-recommends $$need || \
			{ echo "please install by hand:$$need"; exit 1; }; \
	fi
	@touch $@

.venv-pypy: | .build/system
	$(PYPY) -m venv $@

.venv: | .build/system
	$(PYTHON) -m venv $@

# setuptools leaves its own folders in the source, and would find old files
# there the next time
define install
	rm -rf $(addsuffix /build,$(2)) $(addsuffix /*.egg-info,$(2))
	$(1) -m pip install -q --disable-pip-version-check $(addprefix ./,$(2))
	rm -rf $(addsuffix /build,$(2)) $(addsuffix /*.egg-info,$(2))
endef

.build/pypy: $(INTEGRATION) | .venv-pypy
	$(call install,.venv-pypy/bin/pypy3,vmprof-integration)
	@touch $@

.build/python: $(INTEGRATION) $(CONVERTER) | .venv
	$(call install,.venv/bin/python,vmprof-integration converter)
	@touch $@

.build/test: tests/requirements.txt | .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

.build/bench: benchmarks/requirements.txt | .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

# the Firefox Profiler's own command line needs a newer Node than Debian's
.build/node: tests/package.json .build/test
	mkdir -p .node
	cp tests/package.json .node/
	PATH="$$PWD/.venv/bin:$$PATH" npm install --silent --no-audit --no-fund --prefix .node
	@touch $@

# Python 2.7 for RPython, and RPython itself, with our patches and without
.build/python2: rpython/python2.py rpython/requirements-python2.txt | .venv
	.venv/bin/python rpython/python2.py .build/py2
	@touch $@

.build/rpython/tree: $(RPYTHON) | .venv
	.venv/bin/python rpython/tree.py $@
	@touch $@

.build/rpython/pristine: rpython/tree.py rpython/python2.py | .venv
	.venv/bin/python rpython/tree.py $@ --pristine
	@touch $@

# make run      install what is missing, sample a program, show the result
# make check    linters, types, fast tests: a minute
# make test     install what is missing, run all tests but the hardest: 45 minutes
#               on two cores
# make guest    build the guest interpreter with the patched RPython; with the
#               JIT: guest-jit
# make pictures take those of README.rst, with Chromium.  PROFILER=address: from
#               a Firefox Profiler that is served there
# make bench    measure the overhead
# make hard     what tests seldom find anything with: two hours.
#               BUILD=sid: with the PyPy of another release of Debian (as root);
#               MACHINE=arm64: with three for arm64, emulated
#
# Everything is installed below this folder (.venv, .venv-pypy, .node), but
# for Debian's packages, of which the missing ones are named before.

SHELL := /bin/bash
# or each worker of pytest compiles all tests again
unexport PYTHONDONTWRITEBYTECODE
PYPY := pypy3
PYTHON := python3

# PYPY=pypy: a PyPy 2.7, in an environment of its own; what is for Python 3 there
# is pypy3's
PYPY2 := .build/py2/python2
ifneq ($(PYPY),pypy3)
ifeq ($(shell command -v $(PYPY)),)
$(error PYPY=$(PYPY): there is no such program)
endif
ifeq ($(shell $(PYPY) -c 'import sys; print(sys.version_info[0])' 2>/dev/null),2)
PYPY2 := $(PYPY)
override PYPY := pypy3
SAMPLED := .venv-pypy27/bin/pypy
endif
endif
SAMPLED ?= .venv-pypy/bin/pypy3

APP := benchmarks/programs/gcbench.py 10
RATE := 128k
PROFILE := app.vmprof

# one test after another to whichever worker is free
WORKERS := 2
IN_PARALLEL = -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
ENVIRONMENTS := .build/pypy .build/python .build/test .build/bench .build/node \
	.build/python2 .build/pypy27 .build/rpython/tree .build/rpython/pristine \
	.build/pytest .build/system-rpython .build/system-suites .build/system-go \
	.build/arm64/bookworm/pypy3
# what hard tests need beside
COLLECTOR := .build/otelcol/otelcol
COLLECTOR_VERSION := v0.160.0

INTEGRATION := $(shell find vmprof-integration -name '*.py' -o -name '*.[ch]' \
	-o -name '*.toml' -o -name '*.pth' -o -name '*.rst')
CONVERTER := $(shell find converter -name '*.py' -o -name '*.toml' \
	-o -name '*.rst' -o -name '*.js' -o -name '*.css')
# no index has either: together, pip finds what the sampler depends on
PACKAGES := converter vmprof-integration
# folders, too: they change when a file is removed
RPYTHON := rpython/tree.py rpython/python2.py \
	$(shell find rpython/patches rpython/added 2>/dev/null) \
	vmprof-integration/vmprof_allocation/native/shared \
	$(filter vmprof-integration/vmprof_allocation/native/shared/%, \
		$(INTEGRATION))

.PHONY: run check test lint guest guest-jit pictures bench hard clean always
.DELETE_ON_ERROR:

run: .build/pypy .build/python $(if $(findstring 27,$(SAMPLED)),.build/pypy27)
	$(SAMPLED) -m vmprof --allocation-sampling $(RATE) -o $(PROFILE) $(APP)
	.venv-pypy/bin/pypy-alloc report --limit 15 $(PROFILE) >$(PROFILE).txt
	@cat $(PROFILE).txt
	@echo; if grep -q '^allocated in .* (0 samples' $(PROFILE).txt; then \
		echo "There is no sample: the program allocates too little for one"; \
		echo "per $(RATE). Try  make run RATE=1k APP=..."; \
	else \
		.venv/bin/vmprof-convert export $(PROFILE) -o $(PROFILE).json.gz && echo && \
		echo "Look at it in the Firefox Profiler:" \
			" .venv/bin/vmprof-convert view $(PROFILE)"; \
	fi

# Linters, types, plain English, and the tests that start no other interpreter
check: .build/pypy .build/python .build/test lint
	.venv/bin/pytest tests $(IN_PARALLEL) -q \
		-m "not (pypy or node or go or python2 or translated or slow or hard)"

# All but what is marked `hard`.  What has to be translated is translated
# meanwhile (tests/rpython/test_translations.py).
test:
	$(MAKE) -j2 --output-sync=target $(ENVIRONMENTS)
	$(MAKE) lint
	.venv/bin/pytest tests $(IN_PARALLEL)

lint: .build/test
	.venv/bin/ruff check .
	.venv/bin/python tests/support/plain_english.py
	.venv/bin/mypy vmprof-integration/vmprof_allocation vmprof-integration/vmprof_push \
		vmprof-integration/python2 converter/vmprof_convert \
		rpython/*.py pypy-branch/*.py benchmarks tests

PROFILER := https://profiler.firefox.com
# where libdevel-nytprof-perl has it
FLAMEGRAPH_PL := perl /usr/share/perl5/Devel/NYTProf/flamegraph.pl

pictures: .build/pictures .build/system-go
	.build/pictures-pypy/bin/pypy3 -m vmprof --allocation-sampling 16k \
		-o .build/shop.vmprof converter/pictures/shop.py 20
	.venv/bin/vmprof-convert export .build/shop.vmprof -o .build/shop.json.gz
	PATH="$$PWD/.venv/bin:$$PATH" NODE_PATH=.node/pictures/node_modules \
		node .node/pictures/take.mjs .build/shop.json.gz converter/pictures $(PROFILER)
	for suffix in html speedscope.json pb.gz heapprofile folded; do \
		.venv/bin/vmprof-convert export .build/shop.vmprof \
			-o .build/shop.$$suffix || exit 1; \
	done
	$(FLAMEGRAPH_PL) --countname bytes --title 'allocated bytes' --inverted \
		--width 1280 .build/shop.folded >.build/shop.svg
	for number in 1 2 3; do \
		.build/pictures-pypy/bin/pypy3 -m vmprof --allocation-sampling 16k \
			-o .build/shop-$$number.vmprof converter/pictures/shop.py 20 && \
		.build/pictures-pypy/bin/pypy3 -m vmprof --allocation-sampling 16k \
			-o .build/pieces-$$number.vmprof converter/pictures/shop.py 20 pieces \
			|| exit 1; \
	done
	cd .build && ../.venv/bin/vmprof-convert diff shop-1.vmprof shop-2.vmprof \
		shop-3.vmprof --against pieces-1.vmprof pieces-2.vmprof pieces-3.vmprof \
		-o shop-diff.html
	PATH="$$PWD/.venv/bin:$$PATH" node .node/pictures/viewers.mjs .build/shop \
		converter/pictures
	# a third of the size, for the eye the same
	pngquant --force --ext .png --strip converter/pictures/*.png

bench: .build/test .build/pypy27 .build/python2 .build/rpython/pristine \
		$(if $(findstring 27,$(SAMPLED)),,.build/bench .build/rpython/guest \
			.build/rpython/guest-jit)
	.venv/bin/python benchmarks/study.py $(if $(findstring 27,$(SAMPLED)), \
		--pypy $(SAMPLED) --output .build/study27 toolchain)

HARD := PYTHONPATH=rpython:tests:tests/support:tests/sampler \
	.venv/bin/python tests/hard/hard.py
# MACHINE=arm64: what the hook engine's own tests say of it, on three releases of Debian,
# and attach in a whole system of one
ifeq ($(MACHINE),arm64)
ARM64_TESTS := $(addprefix tests/,end_to_end/test_stacks.py end_to_end/test_lines.py \
	end_to_end/test_estimates.py end_to_end/test_what_became.py \
	end_to_end/test_native_stacks.py sampler/test_start_stop.py \
	sampler/test_program.py sampler/test_nursery_gc.py sampler/test_forks.py \
	sampler/test_children.py sampler/test_harmless.py)
# of CPython's tests: they end within minutes there
ARM64_SUITES := bool abc atexit augassign contextlib coroutines dict dynamic exceptions \
	fork1 gc grammar iter list scope slice struct sys_settrace tuple wait4 weakref with \
	yield_from zlib
hard: $(foreach release,bookworm trixie sid,.build/arm64/$(release)/pypy3)
	# what each test would look for is looked for once: that takes minutes there
	export XDG_CACHE_HOME="$$PWD/.build/arm64/cache"; \
	for pypy in $^; do \
		$$pypy -m vmprof_allocation doctor && \
		PYPY=$$pypy .venv/bin/pytest $(ARM64_TESTS) $(IN_PARALLEL) --timeout 7200 || failed=1; \
		$(HARD) --pypy $$pypy $(ARM64_SUITES) || failed=1; \
	done; [ -z "$$failed" ]
	# with what was found by then, as that takes ten minutes there
	$(MAKE) .build/system-machine
	.venv/bin/pytest tests/emulated/test_machine.py -m hard --timeout 7200
else
hard: $(ENVIRONMENTS) .build/system-hard $(COLLECTOR)
	$(if $(BUILD),,.venv/bin/pytest tests $(IN_PARALLEL) -m hard --timeout 7200)
	$(HARD) $(if $(BUILD),--build $(BUILD))

endif

guest: .build/rpython/guest .build/python

guest-jit: .build/rpython/guest-jit .build/python

clean:
	rm -rf .build .venv .venv-pypy .venv-pypy27 .node

# $(call apt_install,PACKAGES), in a shell command: install them, if any
define apt_install
	if [ -n "$(1)" ]; then \
		echo "missing:$(1)"; \
		if ! command -v apt-get >/dev/null; then \
			echo "please install what these packages of Debian's hold"; exit 1; \
		fi; \
		root=; [ $$(id -u) = 0 ] || root=sudo; \
		$$root apt-get update -q && $$root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -q -y --no-install-recommends $(1) || \
			{ echo "please install by hand:$(1)"; exit 1; }; \
	fi
endef

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
	$(call apt_install,$$need)
	@touch $@

# What translated programs and RPython's own tests need on top.
.build/system-rpython: | .build/system
	@need=; \
	for header in ffi.h gc/gc.h libunwind.h openssl/ssl.h zlib.h; do \
		echo "#include <$$header>" | cc -x c -fsyntax-only - 2>/dev/null || \
			need="$$need $$header"; \
	done; \
	need=$$(echo "$$need" | sed 's,gc/gc.h,libgc-dev,; s,ffi.h,libffi-dev,; \
		s,libunwind.h,libunwind-dev,; s,openssl/ssl.h,libssl-dev,; \
		s,zlib.h,zlib1g-dev,'); \
	command -v valgrind >/dev/null || need="$$need valgrind libc6-dbg"; \
	command -v objdump >/dev/null || need="$$need binutils"; \
	command -v pkg-config >/dev/null || need="$$need pkg-config"; \
	$(call apt_install,$$need)
	@touch $@

# CPython's own tests, for PyPy, and its headers.
.build/system-suites: | .build/system-rpython
	@need=; \
	$(PYPY) -c 'import test.test_weakset' 2>/dev/null || \
		need="$$need pypy3-lib-testsuite"; \
	[ -e "$$($(PYPY) -c 'import sysconfig; \
		print(sysconfig.get_paths()["include"])')/Python.h" ] || \
		need="$$need pypy3-dev"; \
	$(call apt_install,$$need)
	@touch $@

# pprof, which opens what we write for it.
.build/system-go: | .build/system-suites
	@need=; \
	command -v go >/dev/null || need="$$need golang-go"; \
	$(call apt_install,$$need)
	@touch $@

# The OpenTelemetry collector: a minute or two, once, and 40 MB
$(COLLECTOR): tests/hard/collector.yaml | .build/system-go
	cd .build && env GOBIN="$$PWD/go-bin" GOFLAGS=-buildvcs=false \
		go install go.opentelemetry.io/collector/cmd/builder@$(COLLECTOR_VERSION)
	.build/go-bin/builder --config $<
	@touch $@

# What gevent's extension needs to be built.
.build/system-hard: | .build/system-suites
	@need=; \
	include=$$($(PYPY) -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
	[ -e "$$include/Python.h" ] || need="$$need pypy3-dev"; \
	command -v g++ >/dev/null || need="$$need g++"; \
	command -v make >/dev/null || need="$$need make"; \
	[ -z "$(BUILD)" ] || command -v debootstrap >/dev/null || \
		need="$$need debootstrap"; \
	$(call apt_install,$$need)
	@[ -n "$(BUILD)" ] || touch $@

# An emulator, and a compiler for what it runs.  Where they can't be had, those tests are
# skipped.
.build/system-arm64: | .build/system-go
	@need=; \
	command -v debootstrap >/dev/null || need="$$need debootstrap"; \
	command -v qemu-aarch64-static >/dev/null || need="$$need qemu-user-static"; \
	echo '#include <stdio.h>' | aarch64-linux-gnu-gcc -x c -fsyntax-only - 2>/dev/null \
		|| need="$$need gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; \
	( $(call apt_install,$$need) ) || echo "nothing is tried on arm64"
	@touch $@

# An emulator of a whole system.
.build/system-machine: | .build/system-arm64
	@need=; \
	command -v qemu-system-aarch64 >/dev/null || need="$$need qemu-system-arm"; \
	( $(call apt_install,$$need) ) || echo "no system of arm64 is tried"
	@touch $@

.build/arm64/%/pypy3: tests/emulated/arm64.py tests/emulated/enter.py .build/pypy \
		| .build/system-arm64 .build/test
	.venv/bin/python tests/emulated/arm64.py $* || echo "nothing is tried on arm64"

.venv-pypy: | .build/system
	$(PYPY) -m venv $@

.venv: | .build/system
	$(PYTHON) -m venv $@

PIP_INSTALL := -m pip install -q --disable-pip-version-check

# From a copy: setuptools leaves its own folders in the source, and would find
# old files there the next time (as it does where somebody else has left them).  TARGET.c tells tests/support/installed.py of
# which C the library was built.
define install
	copy=$$(mktemp -d .build/install.XXXXXX) && trap "rm -rf $$copy" EXIT && \
		cp -R $(2) $$copy && rm -rf $$copy/*/build && \
		$(1) $(PIP_INSTALL) $(addprefix $$copy/,$(2))
	@sha256sum $(filter %.c %.h,$(INTEGRATION)) >$@.c
endef

.build/pypy: $(INTEGRATION) $(CONVERTER) | .venv-pypy
	$(call install,.venv-pypy/bin/pypy3,$(PACKAGES))
	@touch $@

.build/python: $(INTEGRATION) $(CONVERTER) | .venv
	$(call install,.venv/bin/python,$(PACKAGES))
	@touch $@

# pytest for PyPy, for tests of its plugin: nothing of it is among PyPy's packages
.build/pytest: tests/requirements-pypy-pytest.txt | .venv-pypy
	.venv-pypy/bin/pypy3 $(PIP_INSTALL) --target .build/pytest-pypy --upgrade -r $<
	@touch $@

# what draws the study's plots, too: its types are checked
.build/test: tests/requirements.txt benchmarks/requirements/study.txt \
		tests/requirements-pypy.txt | .build/python .build/pypy
	.venv/bin/python $(PIP_INSTALL) $(addprefix -r ,$(filter-out %-pypy.txt,$^))
	.venv-pypy/bin/pypy3 $(PIP_INSTALL) -r tests/requirements-pypy.txt
	@touch $@

# Environments for the study, with what its programs need and other profilers:
# nothing of it is in the ones above
PYPERFORMANCE := pyperformance==1.11.0

.build/bench: $(INTEGRATION) $(CONVERTER) $(wildcard benchmarks/requirements/*.txt) \
		| .build/test
	[ -e .build/bench-pypy ] || $(PYPY) -m venv .build/bench-pypy
	[ -e .build/bench-cpython ] || $(PYTHON) -m venv .build/bench-cpython
	.build/bench-pypy/bin/pypy3 $(PIP_INSTALL) -r benchmarks/requirements/pypy.txt
	.build/bench-pypy/bin/pypy3 $(PIP_INSTALL) --no-deps $(PYPERFORMANCE)
	$(call install,.build/bench-pypy/bin/pypy3,$(PACKAGES))
	.build/bench-cpython/bin/python $(PIP_INSTALL) \
		-r benchmarks/requirements/cpython.txt
	.build/bench-cpython/bin/python $(PIP_INSTALL) --no-deps $(PYPERFORMANCE)
	@touch $@

# the Firefox Profiler's own command line needs a newer Node than Debian's
.build/node: tests/package.json .build/test
	mkdir -p .node
	cp tests/package.json .node/
	PATH="$$PWD/.venv/bin:$$PATH" npm install --silent --no-audit --no-fund --prefix .node
	@touch $@

# A browser, what drives it, and the program of the pictures.  Speedscope's buttons are
# emoji
.build/pictures: $(wildcard converter/pictures/*.json converter/pictures/*.mjs converter/pictures/*.txt) \
		$(INTEGRATION) $(CONVERTER) .build/test
	@need=; \
	command -v chromium >/dev/null || need="$$need chromium fonts-dejavu-core"; \
	command -v pngquant >/dev/null || need="$$need pngquant"; \
	fc-list 2>/dev/null | grep -qi emoji || need="$$need fonts-noto-color-emoji"; \
	$(FLAMEGRAPH_PL) --help 2>&1 | grep -q countname || \
		need="$$need libdevel-nytprof-perl"; \
	$(call apt_install,$$need)
	mkdir -p .node/pictures
	cp converter/pictures/package.json converter/pictures/*.mjs .node/pictures/
	PATH="$$PWD/.venv/bin:$$PATH" npm install --silent --no-audit --no-fund \
		--prefix .node/pictures
	[ -e .build/pictures-pypy ] || $(PYPY) -m venv .build/pictures-pypy
	.build/pictures-pypy/bin/pypy3 $(PIP_INSTALL) -r converter/pictures/requirements.txt
	$(call install,.build/pictures-pypy/bin/pypy3,$(PACKAGES))
	@touch $@

# PyPy 2.7 with our package: the wheel for it is made out of that for Python 3
.build/pypy27: $(INTEGRATION) .build/pypy .build/test \
		$(if $(filter .build/py2/%,$(PYPY2)),.build/python2) \
		$(if $(filter $(PYPY2),$(shell cat .build/pypy27 2>/dev/null)),,always)
	copy=$$(mktemp -d .build/install.XXXXXX) && trap "rm -rf $$copy" EXIT && \
		cp -R vmprof-integration $$copy && rm -rf $$copy/*/build && \
		.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps \
			-w $$copy $$copy/vmprof-integration && \
		wheel=$$(.venv/bin/python vmprof-integration/python2/make_wheel.py \
			$$copy/*.whl) && \
		.venv/bin/python vmprof-integration/python2/make_environment.py \
			$(PYPY2) $$wheel .venv-pypy/bin/pypy3 .venv-pypy27
	@sha256sum $(filter %.c %.h,$(INTEGRATION)) >$@.c
	@echo $(PYPY2) >$@

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

TRANSLATE = .venv/bin/python rpython/translate.py .build/py2/python2
GUEST := rpython/examples/targetguest.py
GUEST_SOURCES := $(GUEST) $(shell find rpython/examples/guest -name '*.py')
GCBENCH := rpython/translator/goal/targetgcbench.py

# what a translation takes: 0.5 to 1.5 minutes; with the JIT 5 to 10
.build/rpython/guest: .build/rpython/tree $(GUEST_SOURCES) rpython/translate.py \
		.build/python2 .build/system-rpython
	$(TRANSLATE) $< $(GUEST) $@ -O2

.build/rpython/guest-jit: .build/rpython/tree $(GUEST_SOURCES) \
		rpython/translate.py .build/python2 .build/system-rpython
	$(TRANSLATE) $< $(GUEST) $@ -Ojit

# of the submissions about allocations, the first one
.build/rpython/tree-samples: $(RPYTHON) $(shell find rpython/samples 2>/dev/null) \
		| .venv
	.venv/bin/python rpython/tree.py $@ --samples
	@touch $@

.build/rpython/samples: .build/rpython/tree-samples rpython/translate.py \
		tests/rpython/python2/targetsamples.py \
		tests/rpython/python2/scenario_nodes.py .build/python2 .build/system-rpython
	$(TRANSLATE) $< tests/rpython/python2/targetsamples.py $@ -O2

SCENARIOS := $(wildcard tests/rpython/python2/*scenario*.py)

.build/rpython/scenarios: .build/rpython/tree $(SCENARIOS) \
		rpython/translate.py .build/python2 .build/system-rpython
	$(TRANSLATE) $< tests/rpython/python2/targetscenarios.py $@ -O2

.build/rpython/gcbench-patched: .build/rpython/tree rpython/translate.py \
		.build/python2 .build/system-rpython
	$(TRANSLATE) $< $</$(GCBENCH) $@ -O2

.build/rpython/gcbench-pristine: .build/rpython/pristine rpython/translate.py \
		.build/python2 .build/system-rpython
	$(TRANSLATE) $< $</$(GCBENCH) $@ -O2

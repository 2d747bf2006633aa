# thumbcached. `make help` lists what there is.
#
# demo and test install the system packages they miss (tools/install-dependencies); everything else only builds and runs.

PREFIX = /usr/local
DESTDIR =
FUZZ_SECONDS = 60
ROUNDS = 100

# The Swift standard library is linked into what is installed, so that the machine it runs on needs no toolchain. That no
# variable is accessed by two at once is checked when the tests run, and not again in what is installed: swift-nio alone asks
# twenty-five times for each request, a fifth of all instructions of a hit.
RELEASE = swift build -c release --static-swift-stdlib -Xswiftc -enforce-exclusivity=unchecked
SOURCES = Sources Tests Package.swift
TSAN_OPTIONS = TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tools/tsan-suppressions"
PROGRAMS = thumbcached thumbcachectl

.PHONY: help demo test check release install tsan asan fuzz kill-test power-cut-test bench bench-docs format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: ## see a user's cache live and end: a real origin, real pictures, the proof that nothing is left
	@tools/install-dependencies build demo
	$(RELEASE)
	@tools/demo "$$($(RELEASE) --show-bin-path)"

test: ## build and run all tests
	@tools/install-dependencies build test
	@tools/install-python-client
	swift build --build-tests
	@tools/run-tests

# A program that accepted anything would pass the check of the example configuration; hence the last two lines, which
# hand it one that it must refuse, for the right reason.
check: ## formatting, a build without warnings, scripts, the example configuration
	@tools/install-dependencies build
	swift format lint --strict --recursive $(SOURCES)
	swift build --build-tests
	for script in .ci/run $$(grep -lsE '^#!.*bash' tools/*); do bash -n "$$script" || exit 1; done
	for script in $$(grep -lsE '^#!.*python3' tools/*) tools/bench/*.py Tests/EndToEndTests/python/*.py; do \
	    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$$script" || exit 1; done
	.build/debug/thumbcached --check-config --config config/thumbcached.toml
	echo 'thread = 1' > .build/unknown-key.toml
	.build/debug/thumbcached --check-config --config .build/unknown-key.toml 2>&1 | grep 'thread: '

release: ## optimised, stripped programs in dist/
	@tools/install-dependencies build
	$(RELEASE)
	mkdir -p dist
	bin="$$($(RELEASE) --show-bin-path)" && for program in $(PROGRAMS); do \
	    strip -o "dist/$$program" "$$bin/$$program" || exit 1; done

# `make release` as yourself, then `sudo make install`: root then needs no toolchain on its PATH.
install: ## programs, documents and an example configuration, to $(DESTDIR)$(PREFIX)
	test -x dist/thumbcached -a -x dist/thumbcachectl || $(MAKE) release
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/thumbcached
	install -m 755 $(addprefix dist/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	install -m 644 README.md CHANGELOG.md LICENSE config/thumbcached.toml docs/*.md \
	    $(DESTDIR)$(PREFIX)/share/doc/thumbcached

# End to end, only the tests that race: the programs there are built with the sanitizer, too.
tsan: ## tests under ThreadSanitizer
	@tools/install-dependencies build test
	swift build --build-tests --sanitize=thread --scratch-path .build-tsan
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan --skip EndToEndTests
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan \
	    --filter 'EndToEndTests.*(LogoutTests|RaceTests|KillTests|1,000 GETs|stop)'

asan: ## tests under AddressSanitizer
	@tools/install-dependencies build test
	swift build --build-tests --sanitize=address --scratch-path .build-asan
	tools/run-tests --sanitize=address --scratch-path .build-asan --skip EndToEndTests

fuzz: ## every fuzzer in Tests/Fuzz for FUZZ_SECONDS, under AddressSanitizer
	@tools/install-dependencies build
	tools/fuzz $(FUZZ_SECONDS)

kill-test: ## kill -9 under load and start again, ROUNDS times
	@tools/install-dependencies build test
	swift build --build-tests
	THUMBCACHED_KILL_ROUNDS=$(ROUNDS) tools/run-tests --filter 'EndToEndTests.*KillTests'

power-cut-test: ## cut the power of a store on a loop-mounted ext4, ROUNDS times (as root)
	@tools/install-dependencies build power-cut
	swift build
	tools/power-cut .build/debug/thumbcached $(ROUNDS)

# The figures go to dist/bench.json, and with `make bench-docs` from there into docs/performance.md.
bench: ROUNDS = 5
bench: ## beside Redis, memcached, nginx, varnish and curl, ROUNDS rounds: the table of docs/performance.md
	@tools/install-dependencies build bench
	THUMBCACHED_BENCH=1 $(RELEASE)
	@python3 tools/bench "$$($(RELEASE) --show-bin-path)" --rounds $(ROUNDS) --json dist/bench.json

bench-docs: ## write the figures of the last make bench into docs/performance.md
	@python3 tools/bench --from dist/bench.json --document docs

format: ## lay out the sources
	swift format --in-place --recursive $(SOURCES)

clean: ## remove what was built
	rm -rf .build .build-tsan .build-asan .build-fuzz dist

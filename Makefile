# `make help` lists the targets. Targets install the Debian packages that they need (tools/install-dependencies).

PREFIX = /usr/local
DESTDIR =
FUZZ_SECONDS = 60
ROUNDS = 100
# Rows that `make bench` omits, for example B1,P12.
SKIP =
MINUTES = 60
CASES = 400
# The .deb that test-system installs, with the other packages in the same directory; default: `make deb` builds them.
PACKAGE =

# Releases link the Swift standard library statically, so that they run without a toolchain. Exclusivity checks are on
# in tests only: in a release they would be half of all instructions of a memory hit (3,500 of 7,200).
RELEASE = $(OWN_TMPDIR) $(FIXED_ADDRESSES) swift build -c release --static-swift-stdlib -Xswiftc -enforce-exclusivity=unchecked \
    $(HARDENING) $(SMALLER) $(RELATIVE_PATHS)
# No run path: libraries come from system directories only. Full RELRO.
HARDENING = --disable-local-rpath -Xswiftc -no-toolchain-stdlib-rpath -Xlinker -z -Xlinker relro \
    -Xlinker -z -Xlinker now
# Omits the dynamic symbol tables, 5 % of each program. lld could also pack relocations, but keeps all of Foundation
# (40 MB) in the daemon, because the TOML parser refers to it.
SMALLER = -Xlinker --no-export-dynamic
# Makes programs independent of the directory in which they are built (`make reproducible`): source paths are relative,
# debug information does not name precompiled modules, and objects contain no hash for incremental code generation.
RELATIVE_PATHS = -Xswiftc -file-prefix-map -Xswiftc "$(CURDIR)=." -Xcc -ffile-prefix-map="$(CURDIR)=." \
    -Xswiftc -Xfrontend -Xswiftc -no-clang-module-breadcrumbs \
    -Xswiftc -Xfrontend -Xswiftc -disable-incremental-llvm-codegen
# The optimizer's output may depend on addresses in memory: it did for one of 250 objects. Some containers do not permit
# this call, and build without it.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
SOURCES = Sources Tests Package.swift fleet/Sources fleet/Tests fleet/Package.swift
VERSION = $(shell sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/ThumbcacheProtocol/Version.swift)

# The optional parts (Package.swift) whose headers are installed.
export THUMBCACHED_PARTS = $(shell tools/built-parts)

# Temporary files of SwiftPM and the compiler go to .build/tmp. In /tmp they may collide with another user's: a compiler
# that cannot write to /tmp/swift-generated-sources writes to the working directory.
OWN_TMPDIR = TMPDIR="$$(mkdir -p .build/tmp && cd .build/tmp && pwd)"

TSAN_OPTIONS = TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tools/tsan-suppressions"
# Packages set this to `:`: debhelper and rpmbuild strip the programs after extracting the debug symbols.
STRIP = strip
PROGRAMS = thumbcached thumbcachectl thumbcached-http
# Programs that are started by other programs or units. The renderer is built only if libvips is installed.
HELPERS = thumbcached-fetcher $(if $(findstring renderer,$(THUMBCACHED_PARTS)),thumbcached-renderer)
# Programs of the Swift package in fleet/.
FLEET = thumbcached-relay thumbcached-oidc
# $(call build-release,options,programs) builds programs and moves them to dist/. They are stripped under a temporary
# name and then renamed, because the replaced program may be running.
build-release = mkdir -p dist && for program in $(2); do $(RELEASE) $(1) --product $$program && \
    cp -f "$$($(RELEASE) $(1) --show-bin-path)/$$program" dist/.$$program && $(STRIP) dist/.$$program && \
    mv -f dist/.$$program "dist/$$program" || exit 1; done

# Files get the commit's time, so that a commit always builds the same package.
EPOCH = SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}
# The configuration file has the same path for every prefix.
CONFIGURATION = $(DESTDIR)/etc/thumbcached/thumbcached.toml
# Directories below the prefix.
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system
# Units of a user's own daemon: `systemctl --user enable --now thumbcached.socket`.
USER_UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/user
DOCUMENTS = $(PREFIX)/share/doc/thumbcached
FLEET_DOCUMENTS = $(DOCUMENTS)-fleet
# Replaces source paths in units and documents with installed paths.
RELOCATED = sed -E -e 's,/usr/(bin|libexec)/thumbcache,$(PREFIX)/\1/thumbcache,g' \
    -e 's,\bfleet/docs/([a-z-]+\.(md|svg|png)),$(FLEET_DOCUMENTS)/\1,g' \
    -e 's,\bdocs/([a-z-]+\.(md|svg|png)),$(DOCUMENTS)/\1,g'
# Debian's zsh has a separate directory for completions of packages.
ZSH = $(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
# Version of the installed systemd; 0 if there is none.
SYSTEMD = $(shell systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p' | grep . || echo 0)
SECURITY_UNITS = thumbcached.service thumbcached-fetcher.service thumbcached-logout@.service thumbcached-pending-logout@.service \
    thumbcached-http.service thumbcached-renderer.service thumbcached-relay.service thumbcached-oidc.service

.PHONY: help demo demo-programs demo-fleet test test-fleet test-examples python-client check release release-fleet site install \
    install-fleet install-documents install-fleet-documents vendor sources deb deb-source reproducible rpm-test lint-deb sbom \
    test-system test-container tsan asan fuzz history-test kept-store fleet-test fleet-scale power-cut-test \
    failing-calls-test mutation-test simulate model-check soak bench bench-docs format clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## build, download images from a real origin, log out, and check that nothing is left
	@tools/install-dependencies build demo
	$(MAKE) --no-print-directory demo-programs
	@tools/demo "$$($(RELEASE) --show-bin-path)"

# Programs of the demo. The renderer is optional.
DEMO = thumbcached thumbcached-fetcher thumbcachectl $(if $(findstring renderer,$(THUMBCACHED_PARTS)),thumbcached-renderer)
demo-programs:
	for program in $(DEMO); do $(RELEASE) --product $$program || exit 1; done

demo-fleet: ## log out on three hosts, one of them unreachable, with a real Redis
	@tools/install-dependencies build parts demo fleet
	$(MAKE) --no-print-directory demo-programs
	$(RELEASE) --package-path fleet
	@fleet/tools/demo-fleet "$$(tools/gather-programs release)"

test: ## build and run the tests of the root package
	@tools/install-dependencies build parts test
	@tools/install-python-client
	$(MAKE) --no-print-directory build-tests
	@tools/run-tests

.PHONY: build-tests build-fleet-tests
build-tests:
	$(OWN_TMPDIR) swift build --build-tests

build-fleet-tests:
	$(OWN_TMPDIR) swift build --package-path fleet --build-tests

test-fleet: ## build and run the tests of the fleet package
	@tools/install-dependencies build parts test
	@tools/install-python-client
	$(OWN_TMPDIR) swift build
	$(MAKE) --no-print-directory build-fleet-tests
	@THUMBCACHED_PROGRAMS="$$(tools/gather-programs debug)" tools/run-tests --package-path fleet

# The wheel is tested. `make test` runs the same tests with the sources, also with Debian's redis-py.
PYTHON = .build/python-client/bin/python
python-client: ## build the wheel of clients/python in dist/, check its types and run its tests
	@tools/install-dependencies build parts python-client
	@tools/install-python-client
	$(OWN_TMPDIR) swift build
	$(EPOCH) $(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist ./clients/python
	cd clients/python && ../../$(PYTHON) -m mypy
	THUMBCACHED_PROGRAMS="$$(tools/gather-programs debug)" \
	    PYTHONPATH="$$(ls $(CURDIR)/dist/thumbcache-$(VERSION)-*.whl)" \
	    $(PYTHON) -m unittest discover --start-directory clients/python/tests

# Installs Go, Java, GTK and a browser (1.3 GB). Screenshots are in .build/screenshots.
test-examples: ## run all programs in examples/, including Go, Java, GTK and the browser
	@tools/install-dependencies build parts test examples
	@tools/install-python-client examples
	$(OWN_TMPDIR) swift build --build-tests
	THUMBCACHED_EXAMPLES=1 tools/run-tests --filter 'EndToEndTests.*(ExampleTests|StatusPageTests)'

# FoundationEssentials' JSONDecoder traps on input nested 513 levels deep, and parts of JWTKit use it. Sources/JSONReader
# reads all JSON from outside.
TRAPPING_DECODERS = JSONDecoder|JSONSerialization|jwksJSON|JWK\(json|JWTPayload|JWTParser

# Both packages are built in parallel, because each build has phases that use only one processor. The checks of the
# configuration and of the licenses are also run with an invalid input, which they must reject.
check: ## check formatting, warnings, scripts, units, the example configuration, licenses and manual pages
	@tools/install-dependencies build parts release systemd rpm
	swift format lint --strict --recursive $(SOURCES)
	echo 'let keys = try JSONDecoder().decode(' | grep -qE '$(TRAPPING_DECODERS)'
	! grep -rnE --include='*.swift' '$(TRAPPING_DECODERS)' Sources fleet/Sources
	$(MAKE) --no-print-directory --jobs=2 build-tests build-fleet-tests
	for script in .ci/run $$(grep -lsE '^#!.*bash' tools/* fleet/tools/*); do bash -n "$$script" || exit 1; done
	for script in $$(grep -lsE '^#!/bin/sh' config/*/* examples/*/* packaging/debian/* packaging/debian/tests/*); do \
	    sh -n "$$script" || exit 1; done
	for script in $$(grep -lsE '^#!.*python3' tools/* fleet/tools/* tools/site/* config/*/* examples/*/*) \
	    tools/lib/*.py tools/site/*.py bench/*.py bench/*/*.py Tests/EndToEndTests/python/*.py \
	    $$(find Tests/SystemTests fleet/Tests -name '*.py'); do \
	    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$$script" || exit 1; done
	tools/make-configuration --check
	.build/debug/thumbcached --check-config --config config/thumbcached.toml
	echo 'thread = 1' > .build/unknown-key.toml
	.build/debug/thumbcached --check-config --config .build/unknown-key.toml 2>&1 | grep 'thread: '
	tools/check-units "$$(tools/gather-programs debug)"
	tools/check-exposure $(SECURITY_UNITS)
	grep -q '^thumbcached ($(VERSION)-' packaging/debian/changelog
	grep -qx 'version = "$(VERSION)"' clients/python/pyproject.toml
	rpmspec --query --srpm --queryformat '%{version}\n' packaging/rpm/thumbcached.spec | grep -qxF '$(VERSION)'
	for package in . fleet; do tools/make-notice $$package .build/NOTICE || exit 1; done
	sed '/swift-log/d' packaging/debian/copyright > .build/copyright-lacks-a-package
	tools/make-notice . .build/NOTICE .build/copyright-lacks-a-package 2>&1 | grep 'vendor/swift-log/'
	tools/make-manuals "$$(tools/gather-programs debug)" .build/man
	for page in .build/man/*; do ! man --warnings --local-file "$$page" 2>&1 >/dev/null | grep . || exit 1; done

release: ## build programs, manual pages and completions in dist/
	@tools/install-dependencies build release
	$(call build-release,,$(PROGRAMS) $(HELPERS))
	mkdir -p dist/completions
	for program in $(PROGRAMS); do \
	    for shell in bash zsh fish; do \
	        dist/$$program --generate-completion-script $$shell > dist/completions/$$program.$$shell || exit 1; done; \
	    sed -i '1{/^#!/d}' dist/completions/$$program.bash || exit 1; done
	$(EPOCH) tools/make-manuals dist dist/man
	tools/make-notice . dist/NOTICE

release-fleet: ## build the programs of the fleet package in dist/
	@tools/install-dependencies build release
	$(call build-release,--package-path fleet,$(FLEET))
	$(EPOCH) tools/make-manuals dist dist/man
	tools/make-notice fleet dist/NOTICE-fleet

site: ## build the documents as an offline site in dist/site; fails on a broken link
	@tools/install-dependencies site
	tools/make-site

# Run `make release` first as yourself, then `sudo make install`: root needs no toolchain. An existing configuration is
# kept. A new one has every key as a comment with its default, so that upgrades can change defaults; the exception is the
# access of thumbcached-http.
install: ## install to $(DESTDIR)$(PREFIX)
	test -x dist/thumbcached -a -d dist/man -a -d dist/completions -a -f dist/NOTICE || $(MAKE) release
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec $(UNITS)/user-.slice.d $(USER_UNITS)
	install -m 755 $(addprefix dist/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	install -m 755 dist/thumbcached-fetcher $(wildcard dist/thumbcached-renderer) $(DESTDIR)$(PREFIX)/libexec
	cd systemd && for unit in *.service *.socket *.path user-.slice.d/*.conf; do \
	    case $$unit in thumbcached-renderer.*) test -x ../dist/thumbcached-renderer || continue ;; esac; \
	    $(RELOCATED) "$$unit" > "$(UNITS)/$$unit" && chmod 644 "$(UNITS)/$$unit" || exit 1; done
	cd systemd/user && for unit in *.service *.socket; do \
	    $(RELOCATED) "$$unit" > "$(USER_UNITS)/$$unit" && chmod 644 "$(USER_UNITS)/$$unit" || exit 1; done
	test "$(SYSTEMD)" -lt 254 || \
	    install -D -m 644 -t $(UNITS)/thumbcached.service.d systemd/since-254/thumbcached.service.d/10-restart.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/sysusers.d systemd/sysusers.d/*.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/tmpfiles.d systemd/tmpfiles.d/thumbcached.conf
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/thumbcached config/hooks/pam-session
	$(call install-manuals,thumbcachectl.1 thumbcached.toml.5 thumbcached.8 thumbcached-http.8 thumbcached-fetcher.8 \
	    $(notdir $(wildcard dist/man/thumbcached-renderer.8)))
	for program in $(PROGRAMS); do \
	    install -D -m 644 dist/completions/$$program.bash \
	        $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$program && \
	    install -D -m 644 dist/completions/$$program.zsh $(DESTDIR)$(PREFIX)/share/zsh/$(ZSH)/_$$program && \
	    install -D -m 644 dist/completions/$$program.fish \
	        $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$program.fish || exit 1; done
	$(MAKE) --no-print-directory install-documents
	install -m 644 dist/NOTICE $(DESTDIR)$(DOCUMENTS)
	test -e "$(CONFIGURATION)" || install -D -m 644 /dev/null "$(CONFIGURATION)"
	test -s "$(CONFIGURATION)" || sed -E 's/^([a-z-]+ = )/# \1/' config/thumbcached.toml > "$(CONFIGURATION)"

install-fleet: ## install the fleet package to $(DESTDIR)$(PREFIX)
	test -x dist/thumbcached-relay -a -x dist/thumbcached-oidc -a -f dist/NOTICE-fleet || $(MAKE) release-fleet
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/libexec $(addprefix dist/,$(FLEET))
	install -d $(UNITS)
	cd fleet/systemd && for unit in *.service; do \
	    $(RELOCATED) "$$unit" > "$(UNITS)/$$unit" && chmod 644 "$(UNITS)/$$unit" || exit 1; done
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/sysusers.d fleet/systemd/sysusers.d/thumbcached-fleet.conf
	$(call install-manuals,$(addsuffix .8,$(FLEET)))
	$(MAKE) --no-print-directory install-fleet-documents
	install -m 644 dist/NOTICE-fleet $(DESTDIR)$(FLEET_DOCUMENTS)/NOTICE

# $(call install-manuals,pages)
install-manuals = for page in $(1); do \
    manual="$(DESTDIR)$(PREFIX)/share/man/man$${page\#\#*.}" && install -d "$$manual" && \
    sed 's|/usr/share/doc/thumbcached|$(DOCUMENTS)|g' "dist/man/$$page" > "$$manual/$$page" && chmod 644 "$$manual/$$page" || exit 1; done

# The documents are installed in one directory, so their links are rewritten. The examples need the Python package.
PYTHON_DOCUMENTS = $(DESTDIR)$(DOCUMENTS)/clients/python
install-documents:
	install -d $(addprefix $(DESTDIR)$(DOCUMENTS)/,hooks application monitoring)
	install -m 644 LICENSE config/thumbcached.toml config/http.toml docs/*.svg docs/*.png $(DESTDIR)$(DOCUMENTS)
	for folder in avatar contacts images web; do \
	    install -D -m 644 -t $(DESTDIR)$(DOCUMENTS)/examples/$$folder examples/$$folder/*.* || exit 1; done
	sed 's,\](\.\./docs/,](../,g' examples/README.md > $(DESTDIR)$(DOCUMENTS)/examples/README.md
	chmod 644 $(DESTDIR)$(DOCUMENTS)/examples/README.md
	install -D -m 644 -t $(PYTHON_DOCUMENTS) clients/python/pyproject.toml
	install -D -m 644 -t $(PYTHON_DOCUMENTS)/src/thumbcache clients/python/src/thumbcache/*.py
	sed 's,\](\.\./\.\./docs/,](../../,g' clients/python/README.md > $(PYTHON_DOCUMENTS)/README.md
	chmod 644 $(PYTHON_DOCUMENTS)/README.md
	for document in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md; do \
	    sed -E -e 's,\]\((\.\./)?fleet/docs/,](../thumbcached-fleet/,g' \
	        -e 's,\]\((\.\./)?(config|docs)/,](,g' -e 's,\]\(\.\./(clients/|examples/|[A-Z][A-Z]+),](\1,g' "$$document" | \
	        $(RELOCATED) > "$(DESTDIR)$(DOCUMENTS)/$${document##*/}" || exit 1; done
	chmod 644 $(DESTDIR)$(DOCUMENTS)/*.md
	install -m 755 config/hooks/* $(DESTDIR)$(DOCUMENTS)/hooks
	install -m 644 config/application/* $(DESTDIR)$(DOCUMENTS)/application
	install -m 644 config/prometheus/* config/grafana/* $(DESTDIR)$(DOCUMENTS)/monitoring

install-fleet-documents:
	install -D -m 644 -t $(DESTDIR)$(FLEET_DOCUMENTS) fleet/docs/*.svg fleet/config/*
	for document in fleet/docs/*.md; do \
	    sed -E -e 's,\]\(\.\./config/,](,g' -e 's,\]\(\.\./\.\./(docs/)?,](../thumbcached/,g' "$$document" | \
	        $(RELOCATED) > "$(DESTDIR)$(FLEET_DOCUMENTS)/$${document##*/}" || exit 1; done
	chmod 644 $(DESTDIR)$(FLEET_DOCUMENTS)/*.md

# In parallel, because each of the two builds has phases that use only one processor.
deb: ## build the Debian packages in dist/
	@tools/install-dependencies build parts release deb
	$(MAKE) --no-print-directory --jobs=2 release release-fleet
	$(EPOCH) tools/make-deb
	tools/check-package dist/thumbcached*.deb

vendor: ## archive the Swift dependencies in dist/, for an offline build
	@tools/install-dependencies build release
	$(OWN_TMPDIR) swift package --package-path fleet resolve
	$(EPOCH) tools/vendor pack dist

sources: vendor ## archive the commit and its dependencies in dist/ (packaging/README.md)
	git archive --prefix=thumbcached-$(VERSION)/ --output=dist/thumbcached-$(VERSION).tar HEAD
	gzip -9nf dist/thumbcached-$(VERSION).tar

deb-source: sources ## build a Debian source package of the commit in dist/source/
	@tools/install-dependencies deb
	$(EPOCH) tools/make-deb source

reproducible: ## build the Debian packages in two clones at different paths; fails if they differ
	@tools/install-dependencies reproducible
	tools/check-reproducible

# A test of the specification. The packages are not for use: Debian's rpm lacks Fedora's systemd-rpm-macros, which expand
# in the scriptlets, and the names of the build dependencies.
RPM_DIRECTORIES = --define '_unitdir %{_prefix}/lib/systemd/system' --define '_userunitdir %{_prefix}/lib/systemd/user' \
    --define '_sysusersdir %{_prefix}/lib/sysusers.d' --define '_tmpfilesdir %{_prefix}/lib/tmpfiles.d'
rpm-test: sources ## build the RPM packages from the archives of the sources, to test the specification
	@tools/install-dependencies build parts release rpm
	$(EPOCH) rpmbuild -bb --nodeps $(RPM_DIRECTORIES) --define '_topdir $(CURDIR)/.build/rpm' \
	    --define '_sourcedir $(CURDIR)/dist' --define '_rpmdir $(CURDIR)/.build/rpm' packaging/rpm/thumbcached.spec

lint-deb: ## check the packages in dist/ with lintian; fails on errors and warnings
	@tools/install-dependencies deb lint-deb
	lintian --fail-on error,warning --allow-root --tag-display-limit 0 dist/thumbcached*.deb

sbom: ## write a software bill of materials of the release to dist/
	$(EPOCH) tools/make-sbom dist/thumbcached-$(VERSION).cdx.json

# Without a toolchain for root: `make deb`, then `sudo make test-system PACKAGE=dist/thumbcached_VERSION.deb`.
test-system: ## test the packages in a booted Debian with systemd, logind and PAM (root): ROUNDS, PACKAGE
	@test "$$(id -u)" -eq 0 || { echo "make test-system needs root, because it boots a Debian in namespaces:" \
	    "make deb, then sudo make test-system PACKAGE=dist/thumbcached_VERSION.deb" >&2; exit 2; }
	@tools/install-dependencies system
	test -n "$(PACKAGE)" || $(MAKE) deb
	tools/test-system --rounds $(ROUNDS) $(or $(PACKAGE),$$(ls -t dist/thumbcached_*.deb | head -1))

test-container: ## build the container image from the packages in dist/ and run the daemon in it (root)
	@tools/install-dependencies container
	tools/test-container

# Includes only those end-to-end tests that exercise races.
tsan: ## run the tests under ThreadSanitizer
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests --sanitize=thread --scratch-path .build-tsan
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan --skip EndToEndTests
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan \
	    --filter 'EndToEndTests.*(LogoutTests|RaceTests|HistoryTests|1,000 GETs|stop)'

# replace_intrin=0: Foundation's Process reads 256 bytes of each directory entry of /proc/self/fd, which are shorter.
# detect_leaks=0: Swift's weak references hide pointers from the leak detector.
# The renderer is left out: its workers' seccomp filter does not permit the sanitizer's system calls.
asan: ## run the tests under AddressSanitizer
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests --sanitize=address --scratch-path .build-asan
	ASAN_OPTIONS=replace_intrin=0:detect_leaks=0 tools/run-tests --sanitize=address --scratch-path .build-asan \
	    --skip 'EndToEndTests|RendererTests'

fuzz: ## run every fuzzer in Tests/Fuzz for FUZZ_SECONDS under AddressSanitizer
	@tools/install-dependencies build parts
	tools/fuzz $(FUZZ_SECONDS)

history-test: ## check ROUNDS random histories of clients and kills for consistency
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests
	THUMBCACHED_HISTORIES=$(ROUNDS) tools/run-tests --filter 'EndToEndTests.*HistoryTests'

# Without SEED: fresh seeds for SECONDS. A violation prints the seed that repeats it; `--trace` shows its events.
simulate: STEPS = 20000
simulate: SECONDS = 60
simulate: ## simulate lives of many users with faults and crashes on one thread: SEED, STEPS, SECONDS
	@tools/install-dependencies build
	$(RELEASE) --product thumbcached-simulation
	"$$($(RELEASE) --show-bin-path)/thumbcached-simulation" $(if $(SEED),--seed $(SEED)) \
	    --steps $(STEPS) --seconds $(SECONDS)

model-check: ## check the models in models/ exhaustively with spin
	@tools/install-dependencies models
	tools/model-check

# To repeat a run: `fleet/tools/fleet-test "$(tools/gather-programs debug)" --rounds 20 --seed 7`; --keep keeps the logs.
fleet-test: ROUNDS = 200
fleet-test: ## test eight hosts and Redis with Sentinels under partitions, kills and restores (root): ROUNDS
	@tools/install-dependencies build parts fleet-test
	$(OWN_TMPDIR) swift build
	$(OWN_TMPDIR) swift build --package-path fleet
	fleet/tools/fleet-test "$$(tools/gather-programs debug)" --rounds $(ROUNDS)

# Takes five minutes on an idle machine and opens 10,000 connections: `ulimit -n 20000`.
fleet-scale: ROUNDS = 3
fleet-scale: ## measure up to 10,000 simulated relays with a real Redis, for fleet/docs/fleet.md: ROUNDS
	@tools/install-dependencies build parts fleet-scale
	$(RELEASE)
	$(RELEASE) --package-path fleet
	mkdir -p dist
	fleet/tools/fleet-scale "$$(tools/gather-programs release)" --rounds $(ROUNDS) --seconds 3 \
	    --json dist/fleet-scale.json --document fleet/docs

power-cut-test: ## simulate power cuts of a store on ext4, xfs and btrfs (root): ROUNDS
	@tools/install-dependencies build parts power-cut
	$(OWN_TMPDIR) swift build
	tools/power-cut .build/debug/thumbcached $(ROUNDS)

# Each of about 5,000 cases takes half a second.
failing-calls-test: ## make each system call of a running daemon fail in turn: CASES, 0 for all
	@tools/install-dependencies build parts failing-calls
	$(OWN_TMPDIR) swift build
	tools/failing-calls .build/debug/thumbcached --cases $(CASES)

# About 20 s for each mutation; `tools/mutations --only fence` runs some.
mutation-test: ## check that a test fails for each mutation in Tests/mutations.toml
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) tools/mutations

# `tools/soak --from dist/soak.jsonl --plot docs/soak.svg` plots a run, also an unfinished one.
soak: ## run a mixed load for MINUTES and plot memory, descriptors and files to docs/soak.svg
	@tools/install-dependencies build parts release
	$(RELEASE)
	mkdir -p dist
	tools/soak "$$($(RELEASE) --show-bin-path)/thumbcached" --minutes $(MINUTES) --samples dist/soak.jsonl \
	    --plot docs/soak.svg

# Results are written to dist/bench.json; `make bench-docs` copies them to docs/performance.md and bench/results.md.
bench: ROUNDS = 5
bench: ## compare with Redis, memcached, nginx, Varnish and curl: ROUNDS, SKIP
	@tools/install-dependencies build parts bench
	THUMBCACHED_BENCH=1 $(RELEASE)
	@python3 bench "$$($(RELEASE) --show-bin-path)" --rounds $(ROUNDS) --json dist/bench.json \
	    $(if $(SKIP),--skip $(SKIP))

bench-docs: ## copy the results of the last make bench to the documents
	@python3 bench --from dist/bench.json

kept-store: ## write a store of this version to Tests/KeptStores
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests
	THUMBCACHED_WRITE_STORE=1 tools/run-tests --filter 'UpgradeTests.*can be written'

metrics-document: ## write the tables of docs/metrics.md
	THUMBCACHED_WRITE_DOCUMENTS=1 tools/run-tests --filter ThumbcachedTests.DaemonMetricsTests

format: ## format the sources
	swift format --in-place --recursive $(SOURCES)

clean: ## remove build results
	rm -rf .build* fleet/.build* dist

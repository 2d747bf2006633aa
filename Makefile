# thumbcached. `make help` lists what there is.
#
# The demos and the tests install the system packages they miss (tools/install-dependencies); everything else only
# builds and runs.

PREFIX = /usr/local
DESTDIR =
FUZZ_SECONDS = 60
ROUNDS = 100
# Rows that bench leaves out, as in B1,P12.
SKIP =
MINUTES = 60
CASES = 400
# The package thumbcached that test-system installs, with the others beside it; by default what `make deb` builds.
PACKAGE =

# The Swift standard library is linked into what is installed, so that the machine it runs on needs no toolchain. That
# no variable is accessed by two at once is checked when the tests run, and not again in what is installed: it is half
# of all instructions of a hit, 3,500 of 7,200.
RELEASE = $(OWN_TMPDIR) swift build -c release --static-swift-stdlib -Xswiftc -enforce-exclusivity=unchecked \
    $(HARDENING) $(SMALLER)
# Libraries are looked for where the system has them and nowhere else, and all addresses of functions are known, and
# read-only, before the program begins.
HARDENING = --disable-local-rpath -Xswiftc -no-toolchain-stdlib-rpath -Xlinker -z -Xlinker relro \
    -Xlinker -z -Xlinker now
# Nobody asks a program for its own functions by name: the tables for that are a twentieth of each. Not with lld, which
# can pack relocations as well: it keeps all of Foundation in the daemon, 40 MB that the TOML parser only names.
SMALLER = -Xlinker --no-export-dynamic
SOURCES = Sources Tests Package.swift fleet/Sources fleet/Tests fleet/Package.swift
VERSION = $(shell sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/ThumbcacheProtocol/Version.swift)

# The optional parts of the build whose headers are installed (Package.swift).
export THUMBCACHED_PARTS = $(shell tools/built-parts)

# What the package manager and the compiler leave in the temporary directory goes with .build. And nobody else's is in
# the way there: a compiler that may not write into another user's /tmp/swift-generated-sources fills the working
# directory instead.
OWN_TMPDIR = TMPDIR="$$(mkdir -p .build/tmp && cd .build/tmp && pwd)"

TSAN_OPTIONS = TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tools/tsan-suppressions"
# Packages set this to `:`, because debhelper and rpmbuild extract the debug symbols and strip the programs themselves.
STRIP = strip
PROGRAMS = thumbcached thumbcachectl thumbcached-exporter
# Programs that other programs or units start. Without its libraries the renderer is left out.
HELPERS = thumbcached-fetcher $(if $(findstring renderer,$(THUMBCACHED_PARTS)),thumbcached-renderer)
# Programs of the package in fleet/.
FLEET = thumbcached-relay thumbcached-oidc
# Builds products and copies them to dist/: $(call build-release,options,programs). A program is stripped under another
# name and then renamed, because the program that it replaces may be running.
build-release = mkdir -p dist && for program in $(2); do $(RELEASE) $(1) --product $$program && \
    cp -f "$$($(RELEASE) $(1) --show-bin-path)/$$program" dist/.partial && $(STRIP) dist/.partial && \
    mv -f dist/.partial "dist/$$program" || exit 1; done

# Files come from the commit's time, so that the same commit makes the same package.
EPOCH = SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}
# Where the program looks for its configuration, whatever the prefix.
CONFIGURATION = $(DESTDIR)/etc/thumbcached/thumbcached.toml
# What systemd, man and shells look for below a prefix.
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system
# The same for users' own managers: enabled by whoever wants one, `systemctl --user enable`.
USER_UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/user
DOCUMENTS = $(PREFIX)/share/doc/thumbcached
FLEET_DOCUMENTS = $(DOCUMENTS)-fleet
# Replaces paths of the sources in units and documents with those of the installation.
RELOCATED = sed -E -e 's,/usr/(bin|libexec)/thumbcache,$(PREFIX)/\1/thumbcache,g' \
    -e 's,\bfleet/docs/([a-z-]+\.(md|svg|png)),$(FLEET_DOCUMENTS)/\1,g' \
    -e 's,\bdocs/([a-z-]+\.(md|svg|png)),$(DOCUMENTS)/\1,g'
# Debian's zsh looks for its packages' completions in a place of their own.
ZSH = $(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
# Of the system that it is installed on, or packaged for; 0 where there is none.
SYSTEMD = $(shell systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p' | grep . || echo 0)
SECURITY_UNITS = thumbcached.service thumbcached-fetcher.service thumbcached-logout@.service thumbcached-honoured@.service \
    thumbcached-exporter.service thumbcached-renderer.service thumbcached-relay.service thumbcached-oidc.service

.PHONY: help demo demo-programs demo-fleet test test-fleet test-examples check release release-fleet site install \
    install-fleet install-documents install-fleet-documents vendor sources deb deb-source lint-deb sbom \
    test-system test-container tsan asan fuzz history-test fleet-test fleet-scale power-cut-test \
    failing-calls-test mutation-test soak bench bench-docs format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: ## see a user's cache live and end: a real origin, real images, and a check that nothing is left
	@tools/install-dependencies build demo
	$(MAKE) --no-print-directory demo-programs
	@tools/demo "$$($(RELEASE) --show-bin-path)"

# What the demo runs: of the renderer only if its libraries are installed.
DEMO = thumbcached thumbcached-fetcher thumbcachectl $(if $(findstring renderer,$(THUMBCACHED_PARTS)),thumbcached-renderer)
demo-programs:
	for program in $(DEMO); do $(RELEASE) --product $$program || exit 1; done

demo-fleet: ## one logout on three hosts, one of them cut off, with a real Redis
	@tools/install-dependencies build parts demo fleet
	$(MAKE) --no-print-directory demo-programs
	$(RELEASE) --package-path fleet
	@fleet/tools/demo-fleet "$$(tools/gather-programs release)"

test: ## build and run all tests
	@tools/install-dependencies build parts test
	@tools/install-python-client
	$(OWN_TMPDIR) swift build --build-tests
	@tools/run-tests

test-fleet: ## build and run the tests of the package in fleet/
	@tools/install-dependencies build parts test
	@tools/install-python-client
	$(OWN_TMPDIR) swift build
	$(OWN_TMPDIR) swift build --package-path fleet --build-tests
	@THUMBCACHED_PROGRAMS="$$(tools/gather-programs debug)" tools/run-tests --package-path fleet

# Go, Java, GTK and a browser are 1.3 GB that no other test needs. What they showed is left in .build/screenshots.
test-examples: ## every program in examples/, also those in Go and Java, the window, and what is for a browser in one
	@tools/install-dependencies build parts test examples
	@tools/install-python-client
	$(OWN_TMPDIR) swift build --build-tests
	THUMBCACHED_EXAMPLES=1 tools/run-tests --filter 'EndToEndTests.*(ExampleTests|StatusPageTests)'

# FoundationEssentials' JSONDecoder traps on input nested 513 deep, and some functions of JWTKit call it: JSON from
# outside is read by Sources/JSONReader.
TRAPPING_DECODERS = JSONDecoder|JSONSerialization|jwksJSON|JWK\(json|JWTPayload|JWTParser

# A program that accepted anything would pass the check of the example configuration, and so would the one that looks
# for licences: hence each is handed something that it must refuse, for the right reason.
check: ## formatting, a build without warnings, scripts, units, the example configuration
	@tools/install-dependencies build parts release systemd rpm
	swift format lint --strict --recursive $(SOURCES)
	echo 'let keys = try JSONDecoder().decode(' | grep -qE '$(TRAPPING_DECODERS)'
	! grep -rnE --include='*.swift' '$(TRAPPING_DECODERS)' Sources fleet/Sources
	$(OWN_TMPDIR) swift build --build-tests
	$(OWN_TMPDIR) swift build --package-path fleet --build-tests
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
	rpmspec --query --srpm --queryformat '%{version}\n' packaging/rpm/thumbcached.spec | grep -qxF '$(VERSION)'
	for package in . fleet; do tools/make-notice $$package .build/NOTICE || exit 1; done
	sed '/swift-log/d' packaging/debian/copyright > .build/copyright-lacks-a-package
	tools/make-notice . .build/NOTICE .build/copyright-lacks-a-package 2>&1 | grep 'vendor/swift-log/'
	tools/make-manuals "$$(tools/gather-programs debug)" .build/man
	for page in .build/man/*; do ! man --warnings --local-file "$$page" 2>&1 >/dev/null | grep . || exit 1; done

release: ## optimized, stripped programs in dist/, with their manual pages and completions
	@tools/install-dependencies build release
	$(call build-release,,$(PROGRAMS) $(HELPERS))
	mkdir -p dist/completions
	for program in $(PROGRAMS); do \
	    for shell in bash zsh fish; do \
	        dist/$$program --generate-completion-script $$shell > dist/completions/$$program.$$shell || exit 1; done; \
	    sed -i '1{/^#!/d}' dist/completions/$$program.bash || exit 1; done
	$(EPOCH) tools/make-manuals dist dist/man
	tools/make-notice . dist/NOTICE

release-fleet: ## the programs of fleet/, in the same place
	@tools/install-dependencies build release
	$(call build-release,--package-path fleet,$(FLEET))
	$(EPOCH) tools/make-manuals dist dist/man
	tools/make-notice fleet dist/NOTICE-fleet

site: ## the documents as a site that needs no network to be read, in dist/site; a broken link fails
	@tools/install-dependencies site
	tools/make-site

# `make release` as yourself, then `sudo make install`, so that root needs no toolchain. The installed configuration has
# every key with its default as a comment, except the exporter's right to read figures: an upgrade can then improve a
# default. An existing configuration is kept.
install: ## programs, units, configuration, manual pages, completions and documents, to $(DESTDIR)$(PREFIX)
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
	$(call install-manuals,thumbcachectl.1 thumbcached.toml.5 thumbcached.8 thumbcached-exporter.8 thumbcached-fetcher.8 \
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
	test -s "$(CONFIGURATION)" || sed -E -e 's/^([a-z-]+ = )/# \1/' \
	    -e 's/^# observers = \[\]$$/observers = ["thumbcached-exporter"]/' config/thumbcached.toml > "$(CONFIGURATION)"

install-fleet: ## programs, units, manual pages and documents of fleet/, to the same place
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

# All documents of the root package are installed into one directory, hence their links change.
install-documents:
	install -d $(addprefix $(DESTDIR)$(DOCUMENTS)/,hooks application monitoring)
	install -m 644 LICENSE config/thumbcached.toml docs/*.svg docs/*.png $(DESTDIR)$(DOCUMENTS)
	for folder in avatar contacts pictures web; do \
	    install -D -m 644 -t $(DESTDIR)$(DOCUMENTS)/examples/$$folder examples/$$folder/*.* || exit 1; done
	sed 's,\](\.\./docs/,](../,g' examples/README.md > $(DESTDIR)$(DOCUMENTS)/examples/README.md
	chmod 644 $(DESTDIR)$(DOCUMENTS)/examples/README.md
	for document in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md; do \
	    sed -E -e 's,\]\((\.\./)?fleet/docs/,](../thumbcached-fleet/,g' \
	        -e 's,\]\((\.\./)?(config|docs)/,](,g' -e 's,\]\(\.\./(examples/|[A-Z][A-Z]+),](\1,g' "$$document" | \
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

deb: ## Debian packages in dist/
	@tools/install-dependencies build parts release deb
	$(MAKE) --no-print-directory release release-fleet
	$(EPOCH) tools/make-deb
	tools/check-package dist/thumbcached*.deb

vendor: ## the Swift packages that are depended on in one archive in dist/, for a build without a network
	@tools/install-dependencies build release
	$(OWN_TMPDIR) swift package --package-path fleet resolve
	$(EPOCH) tools/vendor pack dist

sources: vendor ## what is committed, and what it depends on, as two archives in dist/: packaging/README.md
	git archive --prefix=thumbcached-$(VERSION)/ --output=dist/thumbcached-$(VERSION).tar HEAD
	gzip -9nf dist/thumbcached-$(VERSION).tar

deb-source: sources ## a Debian source package in dist/source/ of what is committed; it is built without a network
	@tools/install-dependencies deb
	$(EPOCH) tools/make-deb source

lint-deb: ## check the packages in dist/ with lintian; errors and warnings fail
	@tools/install-dependencies deb lint-deb
	lintian --fail-on error,warning --allow-root --tag-display-limit 0 dist/thumbcached*.deb

sbom: ## a software bill of materials of what `make release release-fleet` built, in dist/
	$(EPOCH) tools/make-sbom dist/thumbcached-$(VERSION).cdx.json

# If root has no toolchain: `make deb` as yourself, then `sudo make test-system PACKAGE=dist/thumbcached_VERSION.deb`.
test-system: ## the packages in a booted Debian with systemd, logind and PAM (needs root): ROUNDS, PACKAGE
	@test "$$(id -u)" -eq 0 || { echo "make test-system needs root, to boot a Debian in namespaces of its own:" \
	    "make deb, then sudo make test-system PACKAGE=dist/thumbcached_VERSION.deb" >&2; exit 2; }
	@tools/install-dependencies system
	test -n "$(PACKAGE)" || $(MAKE) deb
	tools/test-system --rounds $(ROUNDS) $(or $(PACKAGE),$$(ls -t dist/thumbcached_*.deb | head -1))

test-container: ## build the container image from the packages in dist/, and run the daemon in it (as root)
	@tools/install-dependencies container
	tools/test-container

# End to end, only the tests that race: the programs there are built with the sanitizer, too.
tsan: ## tests under ThreadSanitizer
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests --sanitize=thread --scratch-path .build-tsan
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan --skip EndToEndTests
	$(TSAN_OPTIONS) tools/run-tests --sanitize=thread --scratch-path .build-tsan \
	    --filter 'EndToEndTests.*(LogoutTests|RaceTests|HistoryTests|1,000 GETs|stop)'

# Foundation's Process copies 256 bytes of each entry of /proc/self/fd, which are shorter. The sanitizer looks at what
# is copied in code that was not built with it, too, unless it is told not to. Leaks are not looked for: Swift hides the
# pointers that weak references go through, and programs that exit leave what libraries hold.
asan: ## tests under AddressSanitizer
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests --sanitize=address --scratch-path .build-asan
	ASAN_OPTIONS=replace_intrin=0:detect_leaks=0 tools/run-tests --sanitize=address --scratch-path .build-asan --skip EndToEndTests

fuzz: ## every fuzzer in Tests/Fuzz for FUZZ_SECONDS, under AddressSanitizer
	@tools/install-dependencies build parts
	tools/fuzz $(FUZZ_SECONDS)

history-test: ## what clients see through kills -9, held against the order it must have: ROUNDS histories
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) swift build --build-tests
	THUMBCACHED_HISTORIES=$(ROUNDS) tools/run-tests --filter 'EndToEndTests.*HistoryTests'

# `fleet/tools/fleet-test "$(tools/gather-programs debug)" --rounds 20 --seed 7` for one run again; --keep leaves its logs and its history.
fleet-test: ROUNDS = 200
fleet-test: ## eight hosts, Redis with Sentinels, each in a network of its own: cuts, kills -9, restores (as root): ROUNDS
	@tools/install-dependencies build parts fleet-test
	$(OWN_TMPDIR) swift build
	$(OWN_TMPDIR) swift build --package-path fleet
	fleet/tools/fleet-test "$$(tools/gather-programs debug)" --rounds $(ROUNDS)

# Five minutes on a quiet machine, which it should be. It opens 10,000 connections: `ulimit -n 20000`.
fleet-scale: ROUNDS = 3
fleet-scale: ## up to 10,000 relays, played, at a real Redis, ROUNDS rounds: the table and plot of fleet/docs/fleet.md
	@tools/install-dependencies build parts fleet-scale
	$(RELEASE)
	$(RELEASE) --package-path fleet
	mkdir -p dist
	fleet/tools/fleet-scale "$$(tools/gather-programs release)" --rounds $(ROUNDS) --seconds 3 \
	    --json dist/fleet-scale.json --document fleet/docs

power-cut-test: ## cut the power of a store on ext4, xfs and btrfs, ROUNDS times each (as root)
	@tools/install-dependencies build parts power-cut
	$(OWN_TMPDIR) swift build
	tools/power-cut .build/debug/thumbcached $(ROUNDS)

# One of some five thousand cases takes half a second.
failing-calls-test: ## every kind of system call of a running daemon fails in turn: CASES, 0 for all
	@tools/install-dependencies build parts failing-calls
	$(OWN_TMPDIR) swift build
	tools/failing-calls .build/debug/thumbcached --cases $(CASES)

# A minute each; `tools/mutations --only fence` for some.
mutation-test: ## turn off one line of Tests/mutations.toml at a time: does a test notice?
	@tools/install-dependencies build parts test
	$(OWN_TMPDIR) tools/mutations

# `tools/soak --from dist/soak.jsonl --plot docs/soak.svg` draws a run, also while it goes on.
soak: ## MINUTES under a mixed load, and whether memory, descriptors or files grow: docs/soak.svg
	@tools/install-dependencies build parts release
	$(RELEASE)
	mkdir -p dist
	tools/soak "$$($(RELEASE) --show-bin-path)/thumbcached" --minutes $(MINUTES) --samples dist/soak.jsonl \
	    --plot docs/soak.svg

# The figures go to dist/bench.json, and with `make bench-docs` from there into docs/performance.md.
bench: ROUNDS = 5
bench: ## beside Redis, memcached, nginx, varnish and curl, ROUNDS rounds, without the rows SKIP=…: the table of docs/performance.md
	@tools/install-dependencies build parts bench
	THUMBCACHED_BENCH=1 $(RELEASE)
	@python3 bench "$$($(RELEASE) --show-bin-path)" --rounds $(ROUNDS) --json dist/bench.json \
	    $(if $(SKIP),--skip $(SKIP))

bench-docs: ## write the figures of the last make bench into docs/performance.md
	@python3 bench --from dist/bench.json --document docs

format: ## lay out the sources
	swift format --in-place --recursive $(SOURCES)

clean: ## remove what was built
	rm -rf .build* fleet/.build* dist

# Nearside: every command does its own set-up and says what it does.
#   make demo          the papers' system in three acts, and a page with the pictures
#   make test          every test that this machine allows; lists what it left out and why
#   make bench         the figures, each beside the bare machine or a peer; writes studies/record/MACHINE/DATE-NAME.jsonl and a page
#   make bench FAST=1  the same in under two minutes, with wider spreads
#   make studies       the papers' tables and figures: paper beside model beside this machine; records as above, pages in OUT
#   make studies FAST=1  the same in seconds each; records beside the pages
#   make documents     the figures and tables of docs/STUDIES.md, docs/PAPERS.md and README.md, from the newest committed records
#   make fuzz          every fuzz target, SECONDS each (default 300)
#   make sanitize      Miri, ThreadSanitizer and AddressSanitizer over the tests that each can run; for once a week
#   make sql           the program for SQL (`nearside sql`), in target/release beside the command
#   make ballista      the program that asks many drives in SQL by a cluster of many hosts, in target/release
#   make install       the command, the programs for SQL where they were built, its completions and manual pages, its units of systemd, FSRLib's header and libraries, its
#                      pkg-config file (PREFIX, DESTDIR); all without what is for a debugger
#   make deb           packages for Debian and Ubuntu, in target/debian; of the programs for SQL, too, where they were built (make sql ballista deb)
#   make package-test  the packages in fresh roots of Debian and Ubuntu, as root: installed, used, purged; what lintian says
#   make wheel         the package for Python, in target/wheels
#   make wheel-sql     and the one for SQL beside it
#   make static        the command without any library of the system's, in target/ARCH-unknown-linux-musl/release
#   make container     an image of that program alone, by podman, buildah or docker (CONTAINER=NAME)

PREFIX ?= /usr/local
SECONDS ?= 300
OUT ?= out
# Without OpenSSL's headers, without TLS. What runs users' programs doubles the time of a build, and neither the demo nor the studies have any.
without_tls = $$(pkg-config --exists openssl 2>/dev/null || echo --no-default-features $(1))
TLS = $(call without_tls,--features=wasm --features=yara)
LEAN = --no-default-features $$(pkg-config --exists openssl 2>/dev/null && echo --features tls)
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: all demo sql ballista test bench studies documents fuzz sanitize install deb package-test wheel wheel-sql static container build whole clean

all: build

build:
	@scripts/setup.sh build
	cargo build --release --locked -p nearside-cli $(TLS)

sql: build
	cargo build --release --locked -p nearside-sql $(call without_tls,--features=program)

ballista:
	@scripts/setup.sh build
	cargo build --release --locked -p nearside-ballista $(without_tls)

demo:
	@scripts/setup.sh demo
	cargo build --release --locked -p nearside-cli $(LEAN)
	@target/release/nearside demo --out $(OUT)

test:
	@scripts/setup.sh test
	@scripts/test.sh

bench:
	@scripts/setup.sh bench
	@FAST=$(FAST) scripts/bench.sh

studies:
	@scripts/setup.sh studies
	cargo build --release --locked -p nearside-cli $(LEAN)
	@target/release/nearside study all $(if $(FAST),--fast) --out $(OUT)

documents:
	@scripts/setup.sh build
	NEARSIDE_BLESS=1 cargo test --locked -p nearside-studies --test documents the_documents_are_filled
	NEARSIDE_BLESS=1 cargo test --locked -p nearside-bench the_readme_has_the_records_tables

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(SECONDS)

sanitize:
	@scripts/setup.sh sanitize
	@scripts/sanitize.sh

# All that is installed or packed. The programs for SQL, where they were built, as new as the rest.
whole: build
	cargo build --release --locked -p nearside-fsrlib-c $(call without_tls)
	@if [ -e target/release/nearside-sql ]; then $(MAKE) sql; fi
	@if [ -e target/release/nearside-ballista ]; then $(MAKE) ballista; fi

install: whole
	@scripts/install.sh "$(DESTDIR)" "$(PREFIX)"

deb:
	@scripts/setup.sh deb
	@$(MAKE) whole
	@scripts/deb.sh

package-test: deb static
	@scripts/setup.sh package-test
	@scripts/package-test.sh

wheel:
	@scripts/setup.sh wheel
	@cd crates/python && ../../target/oracles/bin/maturin build --release --locked --out ../../target/wheels

wheel-sql: wheel
	@cd crates/python-sql && ../../target/oracles/bin/maturin build --release --locked --out ../../target/wheels

static:
	@scripts/setup.sh static
	cargo build --release --locked -p nearside-cli --no-default-features --features yara --target $(shell uname -m)-unknown-linux-musl

container: static
	@scripts/container.sh

clean:
	cargo clean
	rm -rf out

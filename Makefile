# make         build build/sluice                     make run    set up, build, train the first model
# make test    set up, build, run all tests           make check  set up, then everything that guards the code
# make test-gpu  what a GPU must pass                 make install [PREFIX=/usr/local] [DESTDIR=]
# make tests   build the tests                        make format, make clean
BUILD  := build
PREFIX ?= /usr/local
JOBS   := $(shell nproc 2>/dev/null || echo 2)

.PHONY: all configure build tests deps deps-test run test test-gpu check install format clean
all: build

# A first configure picks ninja where there is one; later ones keep what was picked.
configure:
	@[ -f $(BUILD)/CMakeCache.txt ] || cmake -S . -B $(BUILD) $$(command -v ninja >/dev/null && echo -G Ninja) >/dev/null

# What is installed: program, libraries, plugin, manual. The tests take several times as long to build.
build: configure
	@cmake --build $(BUILD) -j $(JOBS) --target runtime

tests: configure
	@cmake --build $(BUILD) -j $(JOBS)

deps:
	@sh tools/deps build

deps-test:
	@sh tools/deps build test

run: deps
	@$(MAKE) --no-print-directory build
	@sh examples/first-run.sh

test: deps-test
	@$(MAKE) --no-print-directory tests
	@sh tools/run-tests $(BUILD)

test-gpu: tests
	@bash tools/test-gpu --build $(BUILD)

check:
	@sh tools/deps build test check
	@$(MAKE) --no-print-directory build
	@bash tools/check $(BUILD)

install: configure
	@cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target runtime
	@cmake --install $(BUILD)

format:
	@sh tools/format

clean:
	rm -rf $(BUILD)

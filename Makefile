# Everything runs in .venv, which the first target that needs it creates; after that no target touches the network.
# make PYTHON=python3.13 demo      another interpreter (remove .venv first)
# make test ARGS='-k slot'         arguments for pytest; with a file or a word, slow tests run as well; JOBS=0 runs all of them in one process, as a debugger wants it
# make bench ONLY=switch           one part of the benchmark
# make mininet SWITCH=bmv2 TOPO=leaf-spine RATE=50 TRAIN='python train.py'     another switch, network, Mbit/s, job
# make VENV=.venv-torch TORCH=2.13.0 torch-tests    with another release of PyTorch than the newest that the pin allows
# make VENV=.venv-shell EXTRAS=dev,demo,shell test     with p4runtime-shell and the old protobuf that it pins

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,demo
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
TORCH_STAMP := $(VENV)/installed-torch-$(or $(TORCH),newest)
DEMO_STAMP := $(VENV)/installed-demo
ARGS ?=
JOBS ?= auto
ONLY ?=
SECONDS ?=
FRAMES ?= 1e9
EXAMPLES ?= 3000
CELLS ?= 3000
SWITCH ?= switchsum
TOPO ?= star,4
RATE ?= 100
TRAIN ?= python examples/digits.py
TORCH ?=
MN = $(SUDO) env SWITCHSUM_BIN=$(abspath $(BIN)) mn --custom mininet/custom.py --switch $(SWITCH) --topo $(TOPO) \
  $(if $(RATE),--link tc$(COMMA)bw=$(RATE)$(COMMA)use_tbf=1$(COMMA)latency_ms=1000)
COMMA := ,
TESTS = $(BIN)/python -m pytest --numprocesses=$(JOBS) --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
DIFFERED := p4src/compiled/switchsum_256 checks/bench/p4/router \
  $(addprefix switch/tests/programs/,matching parsing stateful replication stacks unions varbit profiles)
SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Packages are installed without bytecode, which Python makes of what is imported: where it may not write it beside the
# modules, each start of switchsum would compile hundreds of them anew.
ifdef PYTHONDONTWRITEBYTECODE
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
endif

.DEFAULT_GOAL := help
.PHONY: help demo mininet mininet-cli needs-mininet test test-rest test-all verify networks rough sparse-sums line fuzz differ soak soak-starts features late late-ranks situations endings bench ages bench-small bench-sparse bench-train scale queueing papers validate coverage screenshots lint p4 docs prose site examples torch torch-tests mutate dist clean random-p4

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO_STAMP) ## train a model with four workers whose gradients a P4 switch adds
	$(BIN)/switchsum run -n 4 --terminal -- $(BIN)/python examples/digits.py $(ARGS)

mininet: $(STAMP) needs-mininet ## train on Mininet's hosts, links limited to RATE Mbit/s (root; SWITCH=bmv2, TOPO=leaf-spine)
	$(MN) --test 'train,$(TRAIN)'

mininet-cli: $(STAMP) needs-mininet ## the same network with Mininet's prompt: train, h1 switchsum job list, pingall
	$(MN)

needs-mininet:
	@mn --version >/dev/null 2>&1 || { echo "$$(command -v mn >/dev/null && echo 'mn does not start, as where Python 3.12 lacks setuptools' || \
	  echo 'Mininet is missing'): sudo apt install mininet ethtool iputils-ping python3-setuptools"; exit 1; }
	@command -v ping >/dev/null || { echo "ping is missing, with which Mininet's pingall looks at the network: sudo apt install iputils-ping"; exit 1; }

test: $(STAMP) ## run the tests that find most, in minutes (those that need root or BMv2 skip by name)
	$(TESTS) $(if $(filter-out -%,$(ARGS)),,-m 'not slow') $(ARGS)

test-rest: $(STAMP) ## run the tests that `make test` leaves out: trainings, whole systems, searches, sweeps (support/slow.txt)
	$(TESTS) -m slow $(ARGS)

test-all: $(STAMP) ## run all tests, as the two above do
	$(TESTS) $(ARGS)

verify: $(STAMP) ## search the protocol's models exhaustively (needs spin and gcc; ARGS=--quick leaves the long ones out)
	$(BIN)/python -m checks.verify $(ARGS)

mutate: $(STAMP) ## change rules of worker, switch and controller on one side alone, and see that a check notices (needs spin and gcc)
	$(BIN)/python -m checks.mutate $(ARGS)

networks: $(STAMP) ## thousands of allreduces on terrible networks: EXAMPLES of each property
	SWITCHSUM_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest --timeout=7200 tests/host/test_terrible_network.py tests/host/test_trees.py \
	  lab/tests/simulation/test_terrible_worlds.py $(ARGS)

rough: $(STAMP) ## sums on random rough networks beside what is possible there: CELLS of today's seed (ARGS=--seed 7 --first 300)
	$(BIN)/python -m checks.rough --cells $(CELLS) $(ARGS)

sparse-sums: $(STAMP) ## random sparse sums of all ways beside plain ones: 300 jobs of today's seed (ARGS='--seed 7 --job 12')
	$(BIN)/python -m checks.sparse_sums --jobs 300 $(ARGS)

line: $(STAMP) ## sums on links of 2 to 100 Mbit/s: fails where a call leaves the line idle, or repeats what was not lost (root; three minutes)
	$(SUDO) $(BIN)/python -m checks.line $(ARGS)

fuzz: $(STAMP) ## fuzz worker, switch, loader and P4Runtime server, each for SECONDS (3600)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS),fuzz]'
	$(BIN)/python -m checks.fuzz --seconds $(or $(SECONDS),3600) $(ARGS)

differ: $(STAMP) ## compare interpreter, native code and BMv2 (if on PATH) by random packets, SECONDS (600) on each of ten programs
	for program in $(DIFFERED); do echo $$program; \
	  $(BIN)/switchsum differ $$program.json $$program.p4info.txtpb --seconds $(or $(SECONDS),600) $(ARGS) || exit 1; done

soak: $(STAMP) ## random jobs on 8 workers with loss and kills, for SECONDS (1800) and until FRAMES (1e9; 0: no longer) have passed; ARGS='--leaves 2': over a tree; --shared: jobs share slots
	$(BIN)/python -m checks.soak --seconds $(or $(SECONDS),1800) --frames $(FRAMES) $(ARGS)

soak-starts: $(STAMP) ## kill and stop parts of a system while the ranks of a job join, TRIALS (200) times
	$(BIN)/python -m checks.soak.starts --trials $(or $(TRIALS),200) $(ARGS)

features: $(STAMP) torch ## every three features together, on ranks whose results are rebuilt in numpy, for SECONDS (600) (ARGS='--seed 7 --row 12')
	$(BIN)/python -m checks.features --seconds $(or $(SECONDS),600) $(ARGS)

late: $(STAMP) torch ## delay a random rank inside its backward pass, in each step another, and see that it is named with its bucket
	$(BIN)/python -m pytest tests/pytorch/test_late_ranks.py $(ARGS)

situations: $(STAMP) ## play thirty situations of jobs with real processes, and look whether explain names each first (15 quiet minutes; ARGS='--only loses', or '--drill 10' to be asked)
	$(BIN)/python -m checks.situations $(ARGS)

late-ranks: $(STAMP) ## train with a rank at half speed: all wait for it, go on with a quorum, or do without it (two minutes)
	$(BIN)/switchsum run -n 4 -- $(BIN)/python -m checks.bench.late_ranks $(ARGS)

endings: $(STAMP) torch ## end STARTS (100) PyTorch jobs of two ranks in each way there is, and look what is left of them
	$(BIN)/python -m checks.soak.endings --starts $(or $(STARTS),100) $(ARGS)

bench: $(STAMP) ## measure; ONLY=switch, programs, interfaces, loopback, tables, control, kernels, allreduce, udp, links, veth, loss, scaling, start, load or train for a part
	$(BIN)/python -m checks.bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

ages: $(STAMP) ## list the tables of figures that are older than the code (ARGS=--mark: say so above them)
	$(BIN)/python -m checks.bench.ages $(ARGS)

bench-small: $(STAMP) ## under a minute; fails when a kernel or a call is slow beside plain work in the same processes (root: at 1 Gbit/s, too)
	$(BIN)/python -m checks.bench --small

scale: $(STAMP) ## the table of docs/results/scale.md: simulated times of 32 to 4,096 workers (an hour and more of a core; ARGS='--workers 64')
	$(BIN)/python -m checks.lab.scale $(ARGS)

queueing: $(STAMP) ## queues in virtual time beside M/D/1 and beside their rates (a minute of a quiet core; ARGS='--share 0.1')
	$(BIN)/python -m checks.lab.queueing $(ARGS)

papers: $(STAMP) ## sweeps after figures of papers, small, in virtual time, with plots in build/papers (minutes; FULL=1: those of lab/papers/full in place of their small ones)
	$(BIN)/python -m pip install --quiet --editable './lab[plots]'
	for file in lab/papers/*.yaml; do name=$$(basename $$file .yaml); out=build/papers/$(if $(FULL),full-)$$name; \
	  $(if $(FULL),[ ! -e lab/papers/full/$$name.yaml ] || file=lab/papers/full/$$name.yaml;) \
	  $(BIN)/switchsum sweep $$file --out $$out $(ARGS) && $(BIN)/switchsum sweep plot $$out || exit 1; done

validate: $(STAMP) ## ten random networks, simulated and measured over veth links (root, a quiet machine, 5 minutes; ARGS=--rows)
	$(SUDO) $(BIN)/python -m checks.lab.validate $(ARGS)

bench-sparse: $(STAMP) torch ## sparse allreduces beside gloo and others' on slow links, with plots (root; half an hour; ARGS='--workers 4 --rate 1gbit')
	$(BIN)/python -m pip install --quiet 'matplotlib>=3.8'
	$(BIN)/python -m checks.lab.sparse $(ARGS)
	$(BIN)/python -m checks.lab.sparse --publish

coverage: $(STAMP) ## list the lines of the worker's engine that its tests do not run; nothing is compiled
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS),cov]'
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest --timeout=600 tests/host/test_engine*.py tests/host/test_integers.py \
	  --cov=host/switchsum_host/engine --cov-branch --cov-report=term-missing $(ARGS)

screenshots: $(STAMP) ## make the pictures of explain and of the live page in docs/images again (needs Debian's chromium and chromium-driver)
	$(BIN)/python -m tools.record_explain
	$(BIN)/python -m pip install --quiet 'pillow>=10'
	SWITCHSUM_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/web/test_page.py $(ARGS)

random-p4: $(STAMP) ## random v1model programs through p4c, interpreter, native code and BMv2 (p4c-bm2-ss on PATH), for SECONDS (600)
	$(BIN)/python -m checks.random_p4 --small --seconds $(or $(SECONDS),600) $(ARGS)

lint: $(STAMP) ## ruff (rules and format), mypy --strict, and the contracts of who imports whom
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m mypy

p4: $(STAMP) ## compile the P4 program (needs p4c-bm2-ss) into p4src/compiled, the exercises' solutions, and baselines
	$(BIN)/python tools/compile_p4.py $(ARGS)
	$(BIN)/python tools/compile_exercises.py
	$(BIN)/python -m tools.compile_baselines

docs: $(STAMP) ## run the examples in the READMEs and docs/
	$(BIN)/python -m pytest --doctest-glob='*.md' README.md docs switch/README.md switch/docs lab/README.md lab/docs $(ARGS)

prose: $(STAMP) ## print sentences of pages and public docstrings that are long or lack a verb (ARGS=docs/tour.md: of one file)
	$(BIN)/python -m tools.prose $(ARGS)

site: $(STAMP) ## build the site into build/site (warnings are errors); nothing in it is loaded from elsewhere
	@$(BIN)/python -c 'import zensical, griffe' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS),site]'
	$(BIN)/python -m tools.site_pages build/pages
	$(BIN)/zensical build --clean --strict

examples: $(STAMP) torch ## the four trainings in full, each beside gloo, and their curves in docs/images
	$(BIN)/python -m pip install --quiet 'matplotlib>=3.8'
	mkdir -p build
	$(BIN)/switchsum run -n 4 --terminal -- $(BIN)/python examples/digits.py --gloo --curves build/digits.json
	for name in images words gpt; do \
	  $(BIN)/torchrun --nproc-per-node 4 examples/$$name.py --curves build/$$name.json || exit 1; done
	$(BIN)/python examples/curves.py docs/images/examples build/digits.json build/images.json build/words.json build/gpt.json

bench-train: $(STAMP) torch ## steps of the examples beside gloo, on links of 200 Mbit/s, 1 Gbit/s and none (links need root)
	$(BIN)/python -m checks.bench --only train $(ARGS)

torch: $(TORCH_STAMP) ## add PyTorch: for training with it, and for the benchmark to compare with

# No tools of developers either, unless EXTRAS are named; targets that test PyTorch ask for $(STAMP).
$(TORCH_STAMP): $(if $(filter file,$(origin EXTRAS)),$(DEMO_STAMP),$(STAMP))
	@echo "installing PyTorch into $(VENV): what pip does not have comes from the network, some hundred MB"
	@rm -f $(VENV)/installed-torch-*
	$(BIN)/python -m pip install --no-compile --editable ./switch --editable '.[$(if $(filter file,$(origin EXTRAS)),demo,$(EXTRAS)),torch]' $(if $(TORCH),torch==$(TORCH))
	@touch $@

torch-tests: torch ## run PyTorch's own tests on the backend, and write docs/results/pytorch-tests.md (ARGS=--quick: a minute's worth)
	$(BIN)/python -m pip install --quiet expecttest
	$(BIN)/python -m checks.torch_tests $(ARGS)

dist: $(STAMP) ## build wheels and sdists of the three distributions in dist, and try them in empty environments (network; ARGS=python3.13)
	$(BIN)/python -m tools.distributions $(ARGS)

clean: ## remove caches and build products (.venv stays)
	rm -rf build dist switch/dist lab/dist .coverage htmlcov .hypothesis .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name '.venv*' -prune -o -name __pycache__ -type d -print | xargs rm -rf

$(STAMP): pyproject.toml switch/pyproject.toml lab/pyproject.toml
	$(call install,$(EXTRAS),--editable ./lab)
	@touch $(DEMO_STAMP)

# The demo alone needs no tools of developers; where these are installed, so is what it needs.
$(DEMO_STAMP): pyproject.toml switch/pyproject.toml
	$(call install,demo)

# pip is looked for and not python: venv leaves a directory without pip behind where python3-venv is missing.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "switchsum needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing switchsum[$1] into $(VENV), what pip does not have from the network"
	@# Without bytecode: Python makes it of what is imported, which is a fraction of what is installed.
	$(BIN)/python -m pip install --no-compile --editable ./switch --editable '.[$1]' $2
	@touch $@
endef

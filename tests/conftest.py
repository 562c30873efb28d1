"""For the whole suite: the right build is under test, the fast tests come first, and what they write is written to memory.

`SLUICE_EXPECT_BUILD=compiled|python` (set by the Makefile) makes the run fail at once when the modules found are of the other build:
a suite that was meant for the compiled wheel but imported the source tree would prove nothing.

A run's folders are in memory where there is room (`support/tmpfs.py`), unless `--basetemp` says otherwise: gone at its end, and kept
until the next one where something has failed. What a test may say of itself though it has passed ("remark", by `record_property`) is told
at the end as well.

Brokers and client libraries that a green run has started are kept with their versions (support/ran.py).

Spark and Sphinx are installed where they are needed (PARTS): a test that needs one that is not there fails, and says what installs it.

No test is run again when it fails. One that hangs fails with its stacks, after the `timeout` of pyproject.toml, or LONG_S where it may
take minutes: a run that is ended from outside would name no test. A process of the run ends with its second: where a broker is gone,
all that need it hang.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from support import ran
from support.builds import build_of, from_the_source_tree, source_command
from support.bytecode import files_of, keep_rewritten
from support.log_calls import LogCheck
from support.processor_time import ProcessorTime
from support.selection import can_select, marks_in, possible_marks
from support.tmpfs import folder_for_a_run
from support.xdist_split import PartScheduling, part_of

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

LATE = {"spark": 1, "rabbitmq": 2, "rocketmq": 3}  # markers of what is slow to start; each kind together, so that it starts once
OF_THE_RUN = ("probe", "rabbitmq", "rocketmq")  # the fixtures that start them; what needs one of them ends before it
# Of these nothing is compiled, and the compiled wheel's own ways in are tested by what starts a gateway: the source tree is enough.
# Classes that stand in for compiled ones can do so there alone.
ONCE = (
    "tests/admin/test_openapi_fuzz.py", "tests/bench/test_calls.py", "tests/deploy/", "tests/docs/", "tests/admin/alerting/",
    "tests/cli/", "tests/common/log_files/", "tests/gateway/pipeline/actions/", "tests/gateway/pipeline/handlers/test_rate_limit.py",
    "tests/gateway/pipeline/test_pipeline.py", "tests/gateway/waiting/test_stage.py", "tests/gateway/waiting/disk/test_paged_tails.py",
    "tests/config/", "tests/mutants/", "tests/test_imports.py", "tests/test_references.py", "tests/test_site.py",
)  # fmt: skip
# The same code twice, as Python and compiled: `make test` runs these on both builds. All others run once, on the build that is installed.
# So do those of them that try hundreds of random cases: a fault in our logic is in both builds, one of mypyc's in the compiled one, and
# they are most of what the others cost. `make test-long` has them on the source tree, too.
TWICE = (
    "tests/common/test_octets.py",
    "tests/contracts/test_protocols.py",
    "tests/fuzz/",
    "tests/gateway/protocols/",
    "tests/gateway/waiting/",
    "tests/limiter/",
)
RANDOM = (  # of TWICE, beside all that are hypothesis's
    "tests/fuzz/test_blind.py", "tests/fuzz/test_round.py", "tests/gateway/protocols/amqp/test_confirm_schedules.py",
)  # fmt: skip
SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text().splitlines())
# By marker: what is looked for, the target that installs it, and all that this target brings.
PARTS = {"spark": ("pyspark", "make .venv/.spark", {"pyspark", "pandas", "duckdb"}), "site": ("sphinx", "make .venv/.docs", {"sphinx"})}
LONG = ("long", "packages", "kubernetes", "storage", "airflow")  # what takes minutes
LONG_S = 14_400  # seconds
MOST_HUNG = 2  # tests
SECOND_HALF = ("rabbitmq", "rocketmq", "bench")
# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

NEWEST_RABBITMQ = Path(__file__).parents[1] / "build" / "rabbitmq4-trixie"  # of `make rabbitmq4`
BROKERS = ("RabbitMQ", "org.apache.rocketmq:rocketmq-broker")
IN_MEMORY = pytest.StashKey[Path]()
RAN = pytest.StashKey[set[tuple[str, str]]]()  # by the processes of the run
HUNG = pytest.StashKey[list[str]]()
STARTED = pytest.StashKey[list[Callable[[], None]]]()  # of OF_THE_RUN: what ends each
WITNESSES = ("limiter.keys", "limiter.judge", "gateway.session.session", "gateway.protocols.amqp.conversation")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for name in ("no_proxy", "NO_PROXY"):  # a proxy is for what is fetched, and all that is tested is here
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "localhost,127.0.0.1,127.0.0.2")))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background: all programs under test would ignore Ctrl-C, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        folder = folder_for_a_run()
        if folder is not None:
            config.option.basetemp = config.stash[IN_MEMORY] = folder
    if config.args_source is config.ArgsSource.TESTPATHS and config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        keep_rewritten(files_of(config.rootpath), config)
    if config.option.durations:
        runs_tests = hasattr(config, "workerinput") or config.getoption("dist", "no") == "no"
        config.pluginmanager.register(ProcessorTime(config.option.durations, runs_tests=runs_tests))
    if NEWEST_RABBITMQ.joinpath("version").exists():
        os.environ.setdefault("SLUICE_RABBITMQ", str(NEWEST_RABBITMQ))
    if from_the_source_tree("cli.main"):  # and not `-o pythonpath=tests`: what is installed
        os.environ.setdefault("SLUICE_COMMAND", source_command())
    expected = os.environ.get("SLUICE_EXPECT_BUILD")
    if not expected:
        return
    for module in WITNESSES:
        build, origin = build_of(module)
        if build != expected:
            pytest.exit(f"{module} is {build} ({origin}), but this run is meant for the {expected} build", returncode=4)
    if expected == "compiled" and from_the_source_tree("limiter.keys"):
        pytest.exit("limiter.keys comes from the source tree, not from the installed wheel", returncode=4)


class WithoutItsModules(pytest.Item):
    """Stands for the tests of a file that cannot be imported without one of PARTS; its marker leaves it out as it does them."""

    obj = None  # plugins look at a test's function

    def runtest(self) -> None:
        raise AssertionError("pytest_runtest_setup lets none of these pass")


class FileOfTests(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
            marker = next((marker for marker, (*_, brought) in PARTS.items() if (missing or "").partition(".")[0] in brought), None)
            if marker is None:
                raise
            item = WithoutItsModules.from_parent(self, name=f"without_{missing}")
            item.add_marker(marker)
            return [item]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which the run's marks can select no test is left out before it is imported."""
    expression = config.option.markexpr
    if not expression or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    possible = possible_marks(collection_path, config.rootpath / "tests") | {"slow"}
    certain = marks_in(collection_path)[1]
    given = given_by_place(collection_path.relative_to(config.rootpath).as_posix())
    if possible.isdisjoint(SECOND_HALF) and len(given) == 1:
        certain |= given
    return None if can_select(expression, possible | given, certain) else True


def given_by_place(place: str) -> frozenset[str]:
    """The marks of which a test in `place` has one, unless it needs what only the second half of `make test` has."""
    return frozenset(
        {"once"} if place.startswith(ONCE) else {"random"} if place in RANDOM else {"random", "twice"} if place.startswith(TWICE) else ()
    )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return FileOfTests.from_parent(parent, path=module_path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, (module, target, _) in PARTS.items():
        if item.get_closest_marker(marker) and importlib.util.find_spec(module) is None:
            pytest.fail(f"{module} is not installed here: `{target}` installs it", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        hung = item.session.stash[HUNG] = [*item.session.stash.get(HUNG, []), item.nodeid]
        if len(hung) >= MOST_HUNG:
            item.session.shouldfail = f"hung: {', '.join(hung)}"
    return (yield)


@pytest.fixture(autouse=True)
def _lines_of_the_log_are_described() -> Iterator[None]:
    """Whatever a test makes the gateway log is as the table of log events says."""
    check = LogCheck()
    logger = logging.getLogger("sluice")
    logger.addHandler(check)
    yield
    logger.removeHandler(check)
    assert not check.unlike, f"not in docs/reference/log_events.py: {sorted(check.unlike)}"


@pytest.fixture(autouse=True)
def _this_process_keeps_its_priority() -> Iterator[None]:
    """A verb that a test calls in this process may lower its priority, which cannot be raised again but by root.

    Every later test, and whatever it starts, would then run behind all else on the machine.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    if os.getpriority(os.PRIO_PROCESS, 0) != before:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
        pytest.fail("this test has changed the priority of the test run: replace os.nice")


def pytest_report_header() -> str:
    build, origin = build_of(WITNESSES[0])
    return f"sluice under test: {build} ({Path(origin).parent.parent})"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives as long as the run: no garbage is looked for meanwhile, nor in it later, and in the rest seldom, as the
    gateway does: that was a twelfth of `make unit`.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast first: what fails soonest is said soonest. In several processes it is the slow ones (support/xdist_split.py).

    Tests in SLOW are marked so. So are those in the places of ONCE and TWICE, but for those that need what only the second half of
    `make test` has.
    """
    places = {path: path.relative_to(config.rootpath).as_posix() for path in {item.path for item in items}}
    marks = [{mark.name for mark in item.iter_markers()} for item in items]  # asked once of each: there are ten thousand
    for item, names in zip(items, marks, strict=True):
        place = places[item.path]
        if item.nodeid.partition("[")[0] in SLOW:
            item.add_marker("slow")
        if not names.isdisjoint(LONG):
            item.add_marker(pytest.mark.timeout(LONG_S))
        if not names.isdisjoint(SECOND_HALF):
            continue
        if place.startswith(ONCE):
            item.add_marker("once")
        elif place.startswith(TWICE):
            of_random_cases = place in RANDOM or hypothesis.is_hypothesis_test(getattr(item, "obj", None))
            item.add_marker("random" if of_random_cases else "twice")

    order = {}
    for item, names in zip(items, marks, strict=True):
        rank = max((rank for name, rank in LATE.items() if name in names), default=0)
        order[item] = (rank, part_of(config.rootpath, places[item.path]) if rank else "")
    items.sort(key=order.__getitem__, reverse=hasattr(config, "workerinput"))


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: Any) -> None:
    if fixturedef.argname in OF_THE_RUN:
        request.config.stash.setdefault(STARTED, []).append(partial(fixturedef.finish, request))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """The run's own brokers and clients end with the part that has them: an idle broker takes a fifteenth of a processor."""
    yield
    root, files = item.config.rootpath, [each.path for each in (item, nextitem) if each is not None]
    if len({part_of(root, file.relative_to(root).as_posix()) for file in files}) == 2:
        for end in item.config.stash.get(STARTED, []):
            end()  # nothing, where it has ended
        item.config.stash[STARTED] = []


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return PartScheduling(config, log)


def pytest_terminal_summary(terminalreporter: TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, remark in getattr(report, "user_properties", ()):
            if name == "remark" and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {remark}")
    untested = [report for report in terminalreporter.stats.get("skipped", ()) if "NOT TESTED" in str(report.longrepr)]
    if untested:
        terminalreporter.write_line(f"NOT TESTED in this run, as it could not be fetched: what {len(untested)} tests show (reasons below).")
    if brokers := [f"{name} {version}" for name, version in started(config) if name in BROKERS]:
        terminalreporter.write_line(f"before {', '.join(brokers)}")
    folder = config.stash.get(IN_MEMORY, None)
    if folder is not None and exitstatus:
        terminalreporter.write_line(f"The folders of this run are kept in {folder} until the next.")


def started(config: pytest.Config) -> list[tuple[str, str]]:
    return sorted({*config.stash.get(RAN, ()), *ran.of_this_process()})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A process of the run has ended in order: what it has started."""
    node.config.stash.setdefault(RAN, set()).update(map(tuple, getattr(node, "workeroutput", {}).get("ran", ())))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ran"] = ran.of_this_process()
    elif not exitstatus and (names := started(session.config)):
        ran.keep(names)
    folder = session.config.stash.get(IN_MEMORY, None)
    if folder is not None and not exitstatus:
        shutil.rmtree(folder, ignore_errors=True)

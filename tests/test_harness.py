"""What the suite itself stands on: how a run in two processes is shared, where its folders are, what a flood is held to."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import isolation, tmpfs
from support.bytecode import files_of, keep_rewritten
from support.cases import in_one_loop
from support.clients.programs import Job, Jobs, Program
from support.java import LEARNED, ROOT, java
from support.models.rates import let_through
from support.processes import HANG_S, wait_until
from support.selection import can_select, marks_in, possible_marks
from support.xdist_split import PartScheduling, Takes, durations, next_part, parts


class Worker:
    """A process of xdist's, as its scheduler sees it."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw", spec="popen")
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_broker_is_started_by_one_process_whatever_node_ids_look_like(tmp_path: Path) -> None:
    """Guards pytest-xdist issue 1386: under pytest 9.2 `--dist loadgroup` gives every process some tests of every group."""
    rocket, rabbit = "rocketmq: RocketMQ", "rabbitmq: RabbitMQ"
    files = {"both": [rocket, rabbit], "rocket": [rocket], "again": [rocket], "rabbit": [rabbit], "plain": [], "own": []}
    (tmp_path / "tests").mkdir()
    for name, taken in files.items():
        (tmp_path / f"tests/test_{name}.py").write_text(f"pytestmark = pytest.mark.rocketmq\ndef test({', '.join(taken)}): ...\n")
    option = SimpleNamespace(loadscopereorder=True, tx=["2*popen"], maxprocesses=None, debug=False)
    config = SimpleNamespace(rootpath=tmp_path, option=option, getvalue=lambda name: getattr(option, name))
    collected = [f"tests/test_{name}.py::test_{number}" for name in files for number in range(3)]
    workers = [Worker(), Worker()]
    scheduling = PartScheduling(config, SimpleNamespace(loadscopesched=lambda *_: None))
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, collected)
    scheduling.schedule()
    assert [worker.given for worker in workers] == [[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11]]
    for part in (9, 12):
        for number in range(part, part + 3):
            scheduling.mark_test_complete(workers[1], number)
    assert workers[1].given == [*range(9, 18)], "who is nearly done takes the next part"


def test_a_brokers_files_are_several_parts_where_they_take_long(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for name in "abcdef":
        taken = "rabbitmq: RabbitMQ" if name < "e" else "rocketmq: RocketMQ"
        (tmp_path / f"tests/test_{name}.py").write_text(f"def test({taken}): ...\n")
    takes = dict(zip("abcdef", (200, 30, 10, 150, 100, 100), strict=True))
    (tmp_path / "tests/durations.txt").write_text("# said\n" + "".join(f"tests/test_{name}.py {s} 7\n" for name, s in takes.items()))
    assert list(parts(tmp_path).values()) == ["rabbitmq 1", "rabbitmq 2", "rabbitmq 2", "rabbitmq 2", "rocketmq", "rocketmq"]


def test_the_next_part_is_the_longest_that_needs_no_more_processors_than_there_are() -> None:
    takes = {"Javas": Takes(200, 240), "waits": Takes(150, 15), "works": Takes(100, 60)}
    left = ["short", "works", "waits", "Javas"]
    assert next_part(left, takes, free=2.0) == "Javas"
    assert next_part(left, takes, free=0.8) == "waits"
    assert next_part(["short", "works"], takes, free=1.0) == "works"
    assert next_part(["short", "Javas"], takes, free=0.1) == "short"


def test_each_file_whose_duration_is_known_is_there() -> None:
    root = Path(__file__).parents[1]
    assert [file for file in durations(root) if not (root / file).exists()] == []


def test_what_pytest_makes_of_files_is_kept_once_for_all_processes(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "tests" / "room").mkdir(parents=True)
    for name in ("conftest", "room/test_one", "room/test_two", "room/helper"):
        (tmp_path / f"tests/{name}.py").write_text("def test(): assert 1 + 1 == 2\n")
    assert keep_rewritten(files_of(tmp_path), pytestconfig) == 3
    assert keep_rewritten(files_of(tmp_path), pytestconfig) == 0
    (tmp_path / "tests/room/test_two.py").write_text("def test(: wrong")
    assert [keep_rewritten(files_of(tmp_path), pytestconfig) for _ in range(2)] == [1, 1], "it is told when it is collected"


def test_each_slow_test_that_is_named_is_there() -> None:
    tests = Path(__file__).parent
    named = [line for line in (tests / "slow.txt").read_text().splitlines() if not line.startswith("#")]
    gone = []
    for file, _, name in (line.partition("::") for line in named):
        path = tests.parent / file
        if not path.exists() or f"def {name.rpartition('::')[2]}(" not in path.read_text():
            gone.append(f"{file}::{name}")
    assert not gone, f"tests/slow.txt names what is no test: {gone}"


def test_a_run_is_in_memory_only_where_there_is_room_and_what_ended_runs_have_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tmpfs, "MEMORY", tmp_path)
    monkeypatch.setattr(tmpfs, "ROOM", 0)
    left, own = tmp_path / f"{tmpfs.PREFIX}{2**22 + 1}", tmp_path / f"{tmpfs.PREFIX}{os.getpid()}"  # no pid is above 2**22
    left.mkdir()
    (left / "log").write_text("of a run that was killed")
    assert tmpfs.folder_for_a_run() == own
    assert not left.exists()
    own.mkdir()
    monkeypatch.setattr(tmpfs, "ROOM", 1 << 60)
    assert tmpfs.folder_for_a_run() is None
    assert own.exists()


def test_a_flood_is_held_to_what_a_bucket_lets_pass_of_it() -> None:
    steady = dict.fromkeys(range(100, 200), 50)  # 500 a second for 10 s
    assert let_through(steady, 100, 20) == pytest.approx(20 + 99 * 10)
    paused = {slot: count for slot, count in steady.items() if not 120 <= slot < 140}
    assert let_through(paused, 100, 20) == pytest.approx(20 + 19 * 10 + 20 + 59 * 10)  # two seconds' pause, and a burst after it
    assert let_through({7: 3}, 100, 20) == 3


def test_a_client_that_a_failed_test_left_is_ended_with_it() -> None:
    sleeping = [sys.executable, "-c", "import time; print('{}', flush=True); time.sleep(60)"]
    with suppress(TimeoutError), Program.none_outlives():
        waited_for = Program([sys.executable, "-c", "print('{}')"])
        assert waited_for.result() == [{}]
        left, stopped = Program(sleeping), Program(sleeping)
        talk = stopped.lines()
        assert next(talk) == {}
        stopped.stop()
        assert not list(talk)
        raise TimeoutError("the test's own")
    assert left.ended()
    assert left not in Program.started


def test_one_that_hangs_fails_with_the_stacks_of_its_threads(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) <= 900, "a run that somebody else ends says of no test that it hung"
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    (tmp_path / "test_it.py").write_text(
        "import threading\nnever = threading.Event()\n"
        "def waits_in_vain(): never.wait(300)\n"
        "def test_hangs(): threading.Thread(target=waits_in_vain, daemon=True).start(); never.wait(300)\n"
        "def test_passes(): pass\n"
        "def test_hangs_too(): never.wait(300)\n"
        "def test_is_not_begun(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--import-mode=importlib", "--basetemp=kept"]
    environment = {name: value for name, value in os.environ.items() if name != "SLUICE_EXPECT_BUILD"}  # it has the source tree's
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    for processes in ("0", "1"):
        done = subprocess.run(
            [*command, "-n", processes], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S
        )  # fmt: skip
        assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
        assert "in waits_in_vain" in done.stdout
        assert "hung: test_it.py::test_hangs, test_it.py::test_hangs_too" in done.stdout


def test_of_cases_in_one_loop_those_that_fail_are_told_by_name() -> None:
    asked: list[tuple[int, str, bool]] = []

    @in_one_loop
    @pytest.mark.parametrize("flag", [True, False], ids=["with", "without"])
    @pytest.mark.parametrize(("number", "word"), iter([(1, "a"), pytest.param(2, "b", id="second")]))
    def test(number: int, word: str, flag: bool) -> None:
        asked.append((number, word, flag))
        assert number == 1 or flag

    with pytest.raises(ExceptionGroup) as told:
        test()
    assert asked == [(1, "a", True), (1, "a", False), (2, "b", True), (2, "b", False)]
    assert [error.__notes__ for error in told.value.exceptions] == [["of second - without"]]


A_JAVA = """import json, os, sys, time
for line in sys.stdin:
    job, application, *words = line.rstrip("\\n").split("\\t")
    if application == "Crash":
        sys.exit("out of memory")
    if application != "Hang":
        end = "a trace" if application == "Fail" else None
        for report in ({"words": words, "pid": os.getpid()}, end):
            print(json.dumps({"job": int(job), "report": report}), flush=True)
"""


def test_jobs_share_a_jvm_and_one_that_hangs_fails_or_crashes_costs_the_next_ones_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java.py").write_text(A_JAVA)
    (tmp_path / "java").write_text(f"#!/bin/sh\nexec '{sys.executable}' '{tmp_path}/java.py'\n")  # a first line names no path with a space
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def begin(application: str, *words: object, patient: bool = True) -> Job:
        return Jobs.begin(f"{tmp_path}/guava/lib/*:{tmp_path}", tmp_path, application, words, patient=patient)

    def jvm_of(job: Job) -> int:
        (report,) = job.result()
        assert report["words"] == ["one", "2"]
        assert job.ended()
        return int(report["pid"])

    both = [begin("Echo", "one", 2) for _ in range(2)]
    first, again = map(jvm_of, both)
    assert first == again
    assert jvm_of(begin("Echo", "one", 2, patient=False)) != first, "its settings are others"
    seen = {first}
    for application, within, said in (
        ("Fail", HANG_S, "Fail: a trace"),
        ("Hang", 0.1, "not end within 0.1 s"),
        ("Crash", HANG_S, "memory"),
    ):
        with pytest.raises(AssertionError, match=said):
            begin(application).result(within)
        seen.add(jvm_of(begin("Echo", "one", 2)))
    assert len(seen) == 4
    with suppress(TimeoutError), Program.none_outlives():
        left = begin("Hang")
        raise TimeoutError("the test's own")
    assert left.ended()
    with Program.none_outlives():
        assert jvm_of(begin("Echo", "one", 2)) not in seen
    for jvm in Jobs._running.values():
        jvm.end()


def test_the_runs_own_brokers_end_with_the_last_file_that_has_them(tmp_path: Path) -> None:
    story = tmp_path / "story"
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.fixture(scope='session')\ndef tell(): return pathlib.Path('story').open('a', 1).write\n"
        "@pytest.fixture(scope='session')\ndef rabbitmq(tell): tell('started '); yield; tell('ended ')\n"
        "@pytest.fixture(scope='session')\ndef client(rabbitmq, tell): yield; tell('left ')\n"
    )
    tests = {"1": "def test(client, rabbitmq: RabbitMQ): ...", "2": "def test(tell, rabbitmq: RabbitMQ): tell('second ')"}
    tests["3"] = "def test(tell, rocketmq: RocketMQ = None): tell('third ')"
    for name, test in tests.items():
        marker = "rocketmq" if name == "3" else "rabbitmq"
        (tmp_path / f"tests/test_{name}.py").write_text(
            f"import pytest\npytestmark = pytest.mark.{marker}\nRabbitMQ = RocketMQ = object\n{test}\n"
        )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = \n rabbitmq\n rocketmq\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--import-mode=importlib", "--basetemp=kept"]
    environment = {name: value for name, value in os.environ.items() if name != "SLUICE_EXPECT_BUILD"}  # it has the source tree's
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [*command, *(f"tests/test_{name}.py" for name in tests)], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
    assert story.read_text().split() == ["started", "second", "left", "ended", "third"]


def test_rocketmqs_classes_are_listed_by_its_first_programs_and_archived_for_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "rocketmq-1" / "lib"
    for folder in (library, tmp_path / "guava" / "lib", tmp_path / "bin"):
        folder.mkdir(parents=True)
    program = tmp_path / "bin" / "java"
    program.write_text('#!/bin/sh\nfor word; do case $word in -XX:SharedArchiveFile=*) cp "$LIST" "${word#*=}";; esac; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("LIST", str(library / f"classes-{LEARNED}.list"))

    def shared(name: str = "rocketmq-1") -> list[str]:
        return [
            word for word in java(f"{tmp_path}/{name}/lib/*:{tmp_path}/classes", "Main", tmp_path) if "Class" in word or "Archive" in word
        ]

    for number in range(LEARNED):
        (listing,) = shared()
        Path(listing.partition("=")[2]).write_text(f"# it begins\nb\na{number}\n@lambda-proxy a\nhalf a li")
    assert shared() == [], "it writes the archive, beside"
    wait_until((library / "classes.jsa").exists, within=10, what="an archive")
    assert (library / "classes.jsa").read_text().split() == [*(f"a{number}" for number in range(LEARNED)), "b"]
    assert shared() == [f"-XX:SharedArchiveFile={library}/classes.jsa"]
    assert shared("guava") == []


@pytest.mark.parametrize(
    ("otherwise", "code", "said"), [("installed", 0, "RABBITMQ 4 IS NOT TESTED"), ("fetched", 1, "make test RABBITMQ=3")]
)
@pytest.mark.parametrize("fault", ["no mirror", "no suite", "no mount"])
def test_a_rabbitmq_that_cannot_be_had_is_told_of_loudly(tmp_path: Path, fault: str, otherwise: str, code: int, said: str) -> None:
    """The tests run on the installed one only where that was said to be enough; what is half there is never used."""
    asked = tmp_path / "asked"
    asked.touch()
    answers = {"no mirror": "", "no suite": '[ "$1" != indextargets ] || { echo "Debian http://mirror"; exit; }; exit 100', "no mount": ""}
    programs = {"apt-get": f'echo "$*" >> {asked}\n{answers[fault]}', "sleep": "", "unshare": 'echo "not permitted" >&2; exit 1'}
    (tmp_path / "bin").mkdir()
    for name, script in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    folder = tmp_path / "rabbitmq4"
    if fault == "no mount":
        folder.mkdir()
        (folder / "version").write_text("4.0.5\n")
    command = ["sh", str(ROOT / "tests/support/brokers/rabbitmq4.sh"), str(folder), "trixie", otherwise]
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert (done.returncode, done.stdout.strip()) == (code, ""), done.stderr
    assert said in done.stderr
    reason = {"no mirror": "knows no Debian mirror", "no suite": "apt says why above, 3 times", "no mount": "not permitted"}
    assert reason[fault] in done.stderr
    assert sum("update" in line and "Dir::Cache" in line for line in asked.read_text().splitlines()) == 3 * (fault == "no suite")
    assert (folder / "version").exists() == (fault == "no mount")


MADE = (".venv/.product-auto", ".venv/.spark", "build/java/spark.jsa", "tests/dashboard/node_modules/.installed")


@pytest.mark.parametrize(
    ("target", "asked", "rabbitmq", "rocketmq"),
    [
        ("e2e", (), "unpacked installed", ""),
        ("e2e", ("RABBITMQ=4",), "unpacked", ""),
        ("e2e", ("RABBITMQ=3", "ROCKETMQ=5.3.3"), "", "5.3.3"),
        ("test-long", (), "", "5.3.3"),
        ("test-long", ("RABBITMQ=4", "ROCKETMQ=5.5"), "unpacked", ""),
        ("test-rabbitmq4", (), "unpacked", ""),
    ],
)
def test_on_which_brokers_make_runs(tmp_path: Path, target: str, asked: tuple[str, ...], rabbitmq: str, rocketmq: str) -> None:
    """The newest, and where nobody has asked for them the installed one will do; `test-long`: the ones before."""
    program = tmp_path / "pytest"
    program.write_text('#!/bin/sh\necho "on $SLUICE_RABBITMQ/$SLUICE_ROCKETMQ"\n')
    program.chmod(0o755)
    given = ("MAKEFLAGS", "MFLAGS", "RABBITMQ", "ROCKETMQ", "SUITE", "SLUICE_COMPILE", "SLUICE_RABBITMQ", "SLUICE_ROCKETMQ")
    environment = {name: value for name, value in os.environ.items() if name not in given}
    made = [word for file in MADE for word in ("-o", file)]
    command = ["make", *made, f"BIN={tmp_path}", "SYSTEM=true", "unpacked-rabbitmq=echo unpacked", *asked, target]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert {line for line in done.stdout.splitlines() if line.startswith("on ")} == {f"on {rabbitmq}/{rocketmq}"}, done.stdout


@pytest.mark.parametrize(
    ("expression", "possible", "certain", "selects"),
    [
        ("(once or spark) and not rabbitmq", {"rabbitmq", "slow"}, set(), False),
        ("(once or spark) and not rabbitmq", {"spark", "rabbitmq"}, set(), True),
        ("(once or spark) and not rabbitmq", {"spark", "rabbitmq"}, {"rabbitmq"}, False),
        ("not once", {"once"}, set(), True),
        ("not once", {"once"}, {"once"}, False),
        ("not once", set(), set(), True),
    ],
)
def test_a_file_is_left_out_only_where_no_test_of_it_can_be_selected(
    expression: str, possible: set[str], certain: set[str], selects: bool
) -> None:
    assert can_select(expression, frozenset(possible), frozenset(certain)) is selects


def test_marks_of_a_file_are_those_of_its_text_and_of_fixtures_around_it(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "conftest.py").write_text("BIG = [pytest.mark.spark]\n")
    file = tmp_path / "room" / "test_it.py"
    file.write_text("pytestmark = [\n    pytest.mark.browser,\n]\n\n@pytest.mark.slow\ndef test_it(): ...\n")
    assert possible_marks(file, tmp_path) == {"spark", "browser", "slow"}
    assert marks_in(file)[1] == {"browser"}


SPINNING = """
import sys, threading, time

def spin():
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass

print(flush=True)
sys.stdin.readline()
for _ in range(2):
    thread = threading.Thread(target=spin)
    thread.start()
    thread.join()
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_allowed", [True, False], ids=["the task's clock", "the scheduler's"])
def test_the_processor_time_of_threads_that_start_later_counts(monkeypatch: pytest.MonkeyPatch, is_allowed: bool) -> None:
    if not is_allowed:
        monkeypatch.setattr(isolation, "SYSTEM_CALL", {})
    with subprocess.Popen([sys.executable, "-c", SPINNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, ExitStack() as stack:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        clock = isolation.ProcessorClock(process.pid, stack)
        before = clock.seconds()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        found = clock.seconds() - before
        coarseness = isolation.coarseness_s(process.pid)
        process.communicate(b"\n")
    if clock.is_exact:
        assert coarseness == 0
        assert 0.4 <= found < 1  # seconds; two threads of 0.2, and what starts them
    else:
        assert coarseness > 0
        assert found < 1  # the scheduler forgets a thread that has ended

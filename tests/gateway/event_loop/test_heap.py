"""What is free in the C library's heap: in a child process each, as the parameters hold for good."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MIB = 1 << 20

# How many heaps there are after four threads, and how much is free in them after blocks of 1 to 12 MiB in turn, behind each of which
# something small stays.
ASK = """
import ctypes, re, tempfile, threading
from gateway.event_loop.heap import bound_free_heap

bound_free_heap()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]

def work(meet):
    kept = []
    for size in range(1, 13):
        block = bytearray(size << 20)
        kept.append(bytes(2000))
        del block
    meet.wait()

threads = [threading.Thread(target=work, args=[meet]) for meet in [threading.Barrier(4)] for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
stay = []
for size in range(1, 13):
    block = bytearray(size << 20)
    stay.append(bytes(2000))
    del block
with tempfile.TemporaryFile() as file:
    stream = libc.fdopen(__import__("os").dup(file.fileno()), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    file.seek(0)
    text = file.read().decode()
heaps, total = text.rsplit("</heap>", 1)
print(heaps.count("<heap nr"), sum(map(int, re.findall(r'type="(?:fast|rest)" count="\\d+" size="(\\d+)"', total))))
"""


def ask(**environment: str) -> tuple[int, int]:
    """Heaps, and bytes that are free in them."""
    inherited = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES" and not name.startswith("MALLOC_")}
    inherited["PYTHONPATH"] = os.pathsep.join(sys.path)
    heaps, free = subprocess.check_output([sys.executable, "-c", ASK], env=inherited | environment, text=True, timeout=60).split()
    return int(heaps), int(free)


def test_what_is_free_goes_back_and_threads_have_no_heaps_of_their_own() -> None:
    heaps, free = ask()
    assert heaps == 1
    assert free < 6 * MIB  # of which 4 may stay at its end


@pytest.mark.parametrize(
    "said", [{"MALLOC_ARENA_MAX": "3"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=3"}], ids=["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"]
)
def test_what_the_environment_says_of_the_heap_holds(said: dict[str, str]) -> None:
    heaps, free = ask(**said)
    assert heaps == 3
    assert free > 6 * MIB

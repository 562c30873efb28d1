"""A profile's functions are added up to parts, each sample to one of them."""

from __future__ import annotations

from shares import PARTS, WORKS, add_up
from works import chosen

REPORT = """# Samples: 4K of event 'cpu-clock:ppp'
#
19.73%  |[kernel.kallsyms]            |[k] _copy_to_iter
2.33%   |[kernel.kallsyms]            |[k] _raw_spin_unlock_irqrestore
5.93%   |native__mypyc.cpython-311.so |[.] scan_publishes
0.99%   |native__mypyc.cpython-311.so |[.] CPyDef_decisions___columns___all_fit
0.80%   |native__mypyc.cpython-311.so |[.] CPyDef_forward___Forward____count_columns
0.87%   |python3.11                   |[.] PyType_GenericAlloc
0.64%   |libc.so.6                    |[.] __memcmp_evex_movbe
0.41%   |libcrypto.so.3               |[.] 0x0000000000241ff1

"""


def test_each_function_is_in_the_first_part_that_it_fits() -> None:
    assert list(add_up(REPORT).values()) == [19.73, 2.33, 0.41, 5.93, 0.99, 0.80, 0.87 + 0.64]


def test_every_work_whose_shares_are_shown_is_one_of_the_benchmark() -> None:
    assert set(WORKS) <= {work.name for work in chosen("stand-ins", [])}
    assert PARTS[-1][1:] == ("", "")  # takes what fits no other

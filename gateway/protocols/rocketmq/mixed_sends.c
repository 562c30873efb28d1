/* What mixed_sends.py has under "also in C", for compiled code (see octets.c). Nothing is read or written outside of an object. */
#include "../../../common/octets.c"
#include "../../../limiter/recent_keys.c"
#include "../../../limiter/scanned_columns.c"
#include "layouts.c"

static inline int64_t scan_sends(PyObject *data, int64_t at, int64_t end, int64_t room, int64_t most, PyObject *plan, PyObject *text,
    VecI64 hashes, PyObject *names, VecI64 numbers, int64_t turn, VecI64 sums, VecI64 rows, VecI64 opaques)
{
    enum { BEFORE = 16, PREFIX = 8, MAX_HEADER = 1 << 18 };
    if (at < 0 || end > Py_SIZE(data) || sums.len < SCANNED_SUMS) return at;
    while (sums.items[SCANNED_MESSAGES] < room && BEFORE + sums.items[SCANNED_MESSAGES] < opaques.len && end - at >= PREFIX) {
        const int64_t length = octets_u32(OCTETS(data) + at), header = octets_u32(OCTETS(data) + at + 4);
        const int64_t whole = 4 + length, head = PREFIX + header;
        if (header > MAX_HEADER || head > whole || whole > end - at || whole > most) break;
        const int64_t found = match_layout(plan, text, data, at + PREFIX, at + head);
        if (found <= 0x7FFFFFFF) break;
        const int64_t name = at + PREFIX + (found >> 31 & 0x3FFFF), name_end = name + (found >> 49);
        const int64_t wanted = hash_octets(data, name, name_end);
        const int64_t place = find_place(hashes, names, wanted, wanted & (hashes.len - 4), data, name, name_end);
        if (place < 0 || !note_message(sums, rows, numbers, turn, place, whole - head)) break;
        opaques.items[BEFORE + sums.items[SCANNED_MESSAGES] - 1] = found & 0x7FFFFFFF;
        at += whole;
    }
    return at;
}

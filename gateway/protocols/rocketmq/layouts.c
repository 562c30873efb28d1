/*
 * What layouts.py has under "also in C". Compiled code calls it in place of what mypyc makes of the function of that name there, which says
 * what it does. Nothing is read outside of a bytes object, whatever is asked.
 */
#ifndef SLUICE_LAYOUTS
#define SLUICE_LAYOUTS
#include "../../../common/octets.c"

enum { LAYOUT_TEXT, LAYOUT_DIGITS, LAYOUT_OPAQUE, LAYOUT_NAME, LAYOUT_END };

static inline const unsigned char *layout_end_of_digits(const unsigned char *at, const unsigned char *stop)
{
    for (; stop - at >= 8; at += 8) {
        uint64_t word = octets_word(at) ^ 0x3030303030303030;  /* a digit is 0 to 9 now */
        uint64_t others = (word | (word & 0x7F7F7F7F7F7F7F7F) + 0x7676767676767676) & 0x8080808080808080;
        if (others) return at + (__builtin_ctzll(others) >> 3);
    }
    while (at < stop && *at >= '0' && *at <= '9') at++;
    return at;
}

static inline int64_t match_layout(PyObject *plan, PyObject *text, PyObject *data, int64_t start, int64_t end)
{
    const unsigned char *step = OCTETS(plan), *steps_end = step + Py_SIZE(plan);
    const unsigned char *same = OCTETS(text), *same_end = same + Py_SIZE(text);
    const unsigned char *first = OCTETS(data);
    if (start < 0 || start > end || end > Py_SIZE(data)) return -1;
    const unsigned char *at = first + start, *stop = first + end, *begin, *quote;
    int64_t opaque = -1, name = 0;
    for (; steps_end - step >= 4; step += 4) {
        int64_t word = (int64_t)step[0] << 24 | step[1] << 16 | step[2] << 8 | step[3], size = word >> 3, kind = word & 7;
        if (size > stop - at || size > same_end - same || memcmp(at, same, (size_t)size)) return -1;
        at += size;
        same += size;
        if (kind == LAYOUT_END) return at == stop && opaque >= 0 ? opaque | name : -1;
        begin = at;
        if (kind == LAYOUT_TEXT || kind == LAYOUT_NAME) {
            quote = memchr(at, '"', (size_t)(stop - at));
            if (!quote) return -1;
            if (kind == LAYOUT_TEXT) {
                if (quote - first < 8) return -1;
                uint64_t tail = octets_word(quote - 8) >> 24;
                if (tail & 0x8080808080 || (((tail ^ 0x5C5C5C5C5C) + 0x7F7F7F7F7F) & 0x8080808080) != 0x8080808080) return -1;
            } else {
                if (begin - first - start > 0x3FFFF || quote - begin > 0x3FFF) return -1;
                name = (int64_t)(begin - first - start) << 31 | (int64_t)(quote - begin) << 49;
            }
            at = quote;
            continue;
        }
        at = layout_end_of_digits(at, stop);
        if (at == begin || at - begin > 18 || (*begin == '0' && at - begin > 1)) return -1;
        if (kind == LAYOUT_OPAQUE) {
            for (opaque = 0; begin < at; begin++) opaque = opaque * 10 + *begin - '0';
            if (opaque > 0x7FFFFFFF) return -1;
        }
    }
    return -1;
}
#endif

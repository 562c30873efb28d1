/*
 * What octets.py has under "also in C". Compiled code calls these in place of what mypyc makes of the functions of their names there, which
 * say what they do. Nothing is read outside of a bytes object, whatever is asked.
 */
#ifndef SLUICE_OCTETS
#define SLUICE_OCTETS
#define OCTETS(data) ((const unsigned char *)PyBytes_AS_STRING(data))

static inline uint64_t octets_word(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline long long octets_u16(const unsigned char *at)
{
    return at[0] << 8 | at[1];
}

static inline long long octets_u32(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline char are_equal(PyObject *one, int64_t at, PyObject *other, int64_t place, int64_t size)
{
    if ((at | place | size) < 0 || size > Py_SIZE(one) - at || size > Py_SIZE(other) - place) return 0;
    return memcmp(OCTETS(one) + at, OCTETS(other) + place, (size_t)size) == 0;
}

static inline int64_t count_equal(PyObject *data, int64_t one, int64_t other, int64_t size)
{
    const unsigned char *first = OCTETS(data) + one, *second = OCTETS(data) + other;
    int64_t count = 0, longest = Py_SIZE(data) - (one > other ? one : other);
    if ((one | other) < 0) return 0;
    if (size > longest) size = longest;
    for (; count + 8 <= size; count += 8) {
        uint64_t differs = octets_word(first + count) ^ octets_word(second + count);
        if (differs) return count + (__builtin_ctzll(differs) >> 3);
    }
    while (count < size && first[count] == second[count]) count++;
    return count;
}

static inline int64_t find_quote(PyObject *data, int64_t start, int64_t end)
{
    if (end > Py_SIZE(data)) end = Py_SIZE(data);
    if (start < 0 || start >= end) return -1;
    const unsigned char *found = memchr(OCTETS(data) + start, '"', (size_t)(end - start));
    return found ? found - OCTETS(data) : -1;
}

static inline int64_t hash_octets(PyObject *data, int64_t start, int64_t end)
{
    const uint64_t factor = 0x2C1B3C6D, other_factor = 0x1B873593, low_half = 0xFFFFFFFF;
    if (end > Py_SIZE(data)) end = Py_SIZE(data);
    if (start < 0 || start > end) return 0;
    uint64_t found = (uint64_t)(end - start);
    const unsigned char *at = OCTETS(data) + start, *stop = OCTETS(data) + end, *last = stop - 8;
    if (stop - at < 8)
        for (; at < stop; at++) {
            found = (found ^ *at) * factor;
            found = (found ^ found >> 32) & low_half;
        }
    else
        for (;;) {
            uint64_t word = octets_word(at);
            found = (found ^ (word & low_half)) * factor ^ (word >> 32) * other_factor;
            found = (found ^ found >> 32) & low_half;
            if (at == last) break;
            at = last - at < 8 ? last : at + 8;
        }
    return (int64_t)(found ^ found >> 15);
}
#endif

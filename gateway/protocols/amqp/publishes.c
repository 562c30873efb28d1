/* What publishes.py has under "also in C", for compiled code (see octets.c). Nothing is read outside of an object, whatever is asked. */
#include "../../../common/octets.c"
#include "../../../limiter/recent_keys.c"
#include "../../../limiter/scanned_columns.c"

static inline int64_t measure_publish(PyObject *data, int64_t pos, int64_t end, int64_t method, int64_t channel, int64_t limit)
{
    enum { METHOD_FRAME = 1, HEADER_FRAME = 2, BODY_FRAME = 3, FRAME_END = 0xCE, PUBLISH = 0x3C0028, CONTENT = 0x3C0000 };
    const int64_t left = end - pos;
    if (pos < 0 || end > Py_SIZE(data) || left < 39 || method < 0 || method > left - 22) return -1;
    const unsigned char *at = OCTETS(data) + pos;
    if (method == 0) {
        if (at[0] != METHOD_FRAME || octets_u16(at + 1) != channel || octets_u32(at + 7) != PUBLISH) return -1;
        int64_t names = 14 + at[13];
        if (names >= left) return -1;
        names += at[names] + 1;
        method = octets_u32(at + 3) + 8;
        if (names + 2 != method || method > left - 22) return -1;
    }
    const unsigned char *header = at + method;
    if (method == 0 || header[-1] != FRAME_END) return -1;
    if (header[0] != HEADER_FRAME || octets_u16(header + 1) != channel || octets_u32(header + 7) != CONTENT) return -1;
    const int64_t size = octets_u32(header + 3) + 8;
    int64_t whole = method + size;
    if (whole > left || size < 22 || size > 0x3FFFFF || size - 8 > limit || header[size - 1] != FRAME_END) return -1;
    const int64_t body_size = (int64_t)((uint64_t)octets_u32(header + 11) << 32 | (uint64_t)octets_u32(header + 15));
    if (body_size != 0) {
        const unsigned char *body = header + size;
        if (body_size < 0 || body_size > limit || body_size > left - whole - 8) return -1;
        whole += body_size + 8;
        if (body[0] != BODY_FRAME || octets_u16(body + 1) != channel || octets_u32(body + 3) != body_size || at[whole - 1] != FRAME_END)
            return -1;
    }
    return whole > 0x7FFFFFFF ? -1 : method << 53 | size << 31 | whole;
}

/* Whether a publish whose content header is `header`, of `size` bytes, may name copies: as `may_name_copies`. */
static inline int publish_may_name_copies(const unsigned char *header, int64_t size)
{
    if (!(header[19] & 0x20)) return 0;
    const unsigned char *at = header + 21, *last = header + size - 1;
    for (int tries = 0; at < last && (at = memchr(at, 'C', (size_t)(last - at))); tries++) {
        if (*++at == 'C') return 1;
        if (tries == 8) return memmem(at, (size_t)(last + 1 - at), "CC", 2) != NULL;  /* cheaper where there are many */
    }
    return 0;
}

static inline int64_t scan_publishes(PyObject *data, int64_t pos, int64_t end, int64_t room, int64_t channel, int64_t limit,
    VecI64 hashes, PyObject *names, VecI64 numbers, int64_t turn, VecI64 sums, VecI64 rows)
{
    if (pos < 0 || end > Py_SIZE(data) || sums.len < SCANNED_SUMS) return pos;
    while (sums.items[SCANNED_MESSAGES] < room) {
        const int64_t found = measure_publish(data, pos, end, 0, channel, limit);
        if (found < 0) break;
        const int64_t method = found >> 53, header = found >> 31 & 0x3FFFFF, whole = found & 0x7FFFFFFF;
        if (publish_may_name_copies(OCTETS(data) + pos + method, header)) break;
        const int64_t wanted = hash_octets(data, pos + 13, pos + method - 2);
        const int64_t place = find_place(hashes, names, wanted, wanted & (hashes.len - 4), data, pos + 13, pos + method - 2);
        int64_t size = whole - method - header;
        if (size) size -= 8;
        if (place < 0 || !note_message(sums, rows, numbers, turn, place, size)) break;
        pos += whole;
    }
    return pos;
}

/* What publishes.py has under "also in C", for compiled code (see octets.c). Nothing is read outside of `data`, whatever is asked. */
static inline long long publish_u16(const unsigned char *at)
{
    return at[0] << 8 | at[1];
}

static inline long long publish_u32(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline int64_t measure_publish(PyObject *data, int64_t pos, int64_t end, int64_t method, int64_t channel, int64_t limit)
{
    enum { METHOD_FRAME = 1, HEADER_FRAME = 2, BODY_FRAME = 3, FRAME_END = 0xCE, PUBLISH = 0x3C0028, CONTENT = 0x3C0000 };
    const int64_t left = end - pos;
    if (pos < 0 || end > Py_SIZE(data) || left < 39 || method < 0 || method > left - 22) return -1;
    const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(data) + pos;
    if (method == 0) {
        if (at[0] != METHOD_FRAME || publish_u16(at + 1) != channel || publish_u32(at + 7) != PUBLISH) return -1;
        int64_t names = 14 + at[13];
        if (names >= left) return -1;
        names += at[names] + 1;
        method = publish_u32(at + 3) + 8;
        if (names + 2 != method || method > left - 22) return -1;
    }
    const unsigned char *header = at + method;
    if (method == 0 || header[-1] != FRAME_END) return -1;
    if (header[0] != HEADER_FRAME || publish_u16(header + 1) != channel || publish_u32(header + 7) != CONTENT) return -1;
    const int64_t size = publish_u32(header + 3) + 8;
    int64_t whole = method + size;
    if (whole > left || size < 22 || size > 0x3FFFFF || size - 8 > limit || header[size - 1] != FRAME_END) return -1;
    const int64_t body_size = (int64_t)((uint64_t)publish_u32(header + 11) << 32 | (uint64_t)publish_u32(header + 15));
    if (body_size != 0) {
        const unsigned char *body = header + size;
        if (body_size < 0 || body_size > limit || body_size > left - whole - 8) return -1;
        whole += body_size + 8;
        if (body[0] != BODY_FRAME || publish_u16(body + 1) != channel || publish_u32(body + 3) != body_size || at[whole - 1] != FRAME_END)
            return -1;
    }
    return whole > 0x7FFFFFFF ? -1 : method << 53 | size << 31 | whole;
}

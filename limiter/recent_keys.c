/* What recent_keys.py has under "also in C", for compiled code (see octets.c). Nothing is read outside of an object, whatever is asked. */
#ifndef SLUICE_RECENT_KEYS
#define SLUICE_RECENT_KEYS
static inline int64_t find_place(VecI64 hashes, PyObject *names, int64_t wanted, int64_t first, PyObject *data, int64_t start, int64_t end)
{
    const int64_t size = end - start, last = first + 4;
    if (first < 0 || last > hashes.len || last > PyList_GET_SIZE(names) || start < 0 || size < 0 || end > Py_SIZE(data)) return -1;
    for (int64_t place = first; place < last; place++) {
        if (hashes.items[place] != wanted) continue;
        PyObject *name = PyList_GET_ITEM(names, place);
        if (Py_SIZE(name) == size && memcmp(PyBytes_AS_STRING(name), PyBytes_AS_STRING(data) + start, (size_t)size) == 0) return place;
    }
    return -1;
}
#endif

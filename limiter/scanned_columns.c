/* What scanned_columns.py has under "also in C", for compiled code (see octets.c). Nothing is read or written outside of a vec. */
#ifndef SLUICE_SCANNED_COLUMNS
#define SLUICE_SCANNED_COLUMNS
enum { SCANNED_NEXT, SCANNED_MESSAGES, SCANNED_ROWS, SCANNED_SUMS };
enum { SUM_PLACE, SUM_COUNT, SUM_SIZE, SUM_FIRST, SUM_LARGEST, SUM_WORDS };

static inline char note_message(VecI64 sums, VecI64 rows, VecI64 numbers, int64_t turn, int64_t place, int64_t size)
{
    if (sums.len < SCANNED_SUMS || place < 0 || place >= numbers.len) return 0;
    const int is_new = numbers.items[place] >> 16 != turn;
    const int64_t number = is_new ? sums.items[SCANNED_NEXT] : numbers.items[place] & 0xFFFF, count = sums.items[SCANNED_ROWS];
    if (number < 0 || number > 0xFFFF || SCANNED_SUMS + SUM_WORDS * (number + 1) > sums.len || count < 0 || count > rows.len) return 0;
    const uint64_t alike = (uint64_t)size << 32 | (uint64_t)number, row = count ? (uint64_t)rows.items[count - 1] : 0;
    if (count && (row & 0xFFFFFFFF0000FFFF) == alike && (row & 0xFFFF0000) != 0xFFFF0000)
        rows.items[count - 1] = (int64_t)(row + 0x10000);
    else if (count == rows.len)
        return 0;
    else {
        rows.items[count] = (int64_t)(alike | 0x10000);
        sums.items[SCANNED_ROWS] = count + 1;
    }
    int64_t *sum = sums.items + SCANNED_SUMS + SUM_WORDS * number;
    if (is_new) {
        numbers.items[place] = turn << 16 | number;
        sums.items[SCANNED_NEXT] = number + 1;
        sum[SUM_PLACE] = place;
        sum[SUM_COUNT] = sum[SUM_SIZE] = 0;
        sum[SUM_FIRST] = sum[SUM_LARGEST] = size;
    }
    sum[SUM_COUNT]++;
    sum[SUM_SIZE] += size;
    if (size > sum[SUM_LARGEST]) sum[SUM_LARGEST] = size;
    sums.items[SCANNED_MESSAGES]++;
    return 1;
}
#endif

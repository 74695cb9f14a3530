#include "records.h"

#include <string.h>

#include "invariant.h"

#define MARKER          'A'
#define VERSION         2

/* The first byte of a column.  Its lowest three bits are the binary logarithm of the
   number of bits per value, plus 1, or 0 if the values take no bits.  A flag is set if
   the base, the step or the unit follows this byte.  With HAS_STEP, each number is the
   difference between the value and the sum of the previous value and the step. */
#define HAS_BASE        0x08
#define HAS_STEP        0x10
#define HAS_UNIT        0x20
#define WIDEST          7               /* 64 bits */

/* Maximum number of rows of a table.  It is not a power of two, because the numbers of a
   row would then compete for the same lines of the processor's caches. */
#define MOST_ROWS       504

/* Bytes before the columns of a record.  FRAME is for marker and size; HEAD is for version,
   kind, number of columns, a zero byte, and number of rows. */
#define FRAME           (1 + sizeof(int64_t))
#define HEAD            8
/* maximum bytes before the values of a column: first byte, base, step and unit */
#define COLUMN_HEAD     (1 + 2 * sizeof(int64_t) + 2)

/* Return the unit of a column with this letter.  If all its numbers are multiples of the
   unit, they are divided by the unit: times in nanoseconds become microseconds, sizes in
   bytes become words of 8 bytes. */
static int64_t unit_of(char letter)
{
    return letter == 't' ? 1000 : letter == 's' ? 8 : 1;
}

/* The letters of the columns: 'n' is a number, 't' a time or duration in ns, 's' a size
   in bytes */
#define NUMBERS(name, columns_, rows_) \
    static int64_t name##_rows[(rows_) * (sizeof(columns_) - 1)]
#define TEXTS(name, size)   static char name##_text[size]
#define TABLE(name, columns_, rows_) \
    { columns_, name##_rows, NULL, sizeof(columns_) - 1, rows_, 0, 0, 0 }
#define NAMED(name, columns_, rows_) \
    { columns_, name##_rows, name##_text, sizeof(columns_) - 1, rows_, \
      sizeof name##_text, 0, 0 }

#define TOTALS          "tnnnnnnn"
#define FRAMES          "nn"
#define NODES           "nn"
#define TYPES           "nnnn"
#define LABELS          "nn"
#define OBJECTS         "nntnnnnsnnnns"
#define ENDED           "nnnt"
#define TICKS           "tnnnn"
#define COLLECTIONS     "nttn"
#define MARKED          "tnt"
#define SWEPT           "tnnnnn"
#define MARKS           "tn"
#define FIGURES         "ntn"
#define NAMES           "nnn"
#define HELD            "ntnnnttnn"
#define HOLDERS         "nnnsnn"
#define HELD_PATHS      "nnnsn"
#define HELD_OBJECTS    "nnnsnnnns"
#define SNAPSHOTS       "tnnttnnn"

NUMBERS(totals, TOTALS, 1);
NUMBERS(frames, FRAMES, 256);
NUMBERS(nodes, NODES, MOST_ROWS);
NUMBERS(types, TYPES, 128);
TEXTS(types, 8192);
NUMBERS(labels, LABELS, 32);
TEXTS(labels, 8192);
NUMBERS(objects, OBJECTS, MOST_ROWS);
NUMBERS(waiting, OBJECTS, MOST_ROWS);
NUMBERS(ended, ENDED, MOST_ROWS);
NUMBERS(ticks, TICKS, MOST_ROWS);
NUMBERS(collections, COLLECTIONS, 256);
NUMBERS(marked, MARKED, 32);
NUMBERS(swept, SWEPT, 32);
NUMBERS(marks, MARKS, 32);
TEXTS(marks, 4096);
NUMBERS(figures, FIGURES, 128);
NUMBERS(names, NAMES, 32);
TEXTS(names, 4096);
NUMBERS(held, HELD, 32);
NUMBERS(holders, HOLDERS, 32);
TEXTS(holders, 8192);
NUMBERS(held_paths, HELD_PATHS, 128);
TEXTS(held_paths, 8192);
NUMBERS(held_objects, HELD_OBJECTS, MOST_ROWS);
NUMBERS(raw, OBJECTS, MOST_ROWS);
NUMBERS(raw_ended, ENDED, MOST_ROWS);
NUMBERS(snapshots, SNAPSHOTS, 32);

static struct record records[RECORD_KINDS] = {
    [RECORD_TOTALS] = TABLE(totals, TOTALS, 1),
    [RECORD_FRAMES] = TABLE(frames, FRAMES, 256),
    [RECORD_NODES] = TABLE(nodes, NODES, MOST_ROWS),
    [RECORD_TYPES] = NAMED(types, TYPES, 128),
    [RECORD_LABELS] = NAMED(labels, LABELS, 32),
    [RECORD_OBJECTS] = TABLE(objects, OBJECTS, MOST_ROWS),
    [RECORD_WAITING] = TABLE(waiting, OBJECTS, MOST_ROWS),
    [RECORD_ENDED] = TABLE(ended, ENDED, MOST_ROWS),
    [RECORD_TICKS] = TABLE(ticks, TICKS, MOST_ROWS),
    [RECORD_COLLECTIONS] = TABLE(collections, COLLECTIONS, 256),
    [RECORD_MARKED] = TABLE(marked, MARKED, 32),
    [RECORD_SWEPT] = TABLE(swept, SWEPT, 32),
    [RECORD_MARKS] = NAMED(marks, MARKS, 32),
    [RECORD_FIGURES] = TABLE(figures, FIGURES, 128),
    [RECORD_NAMES] = NAMED(names, NAMES, 32),
    [RECORD_HELD] = TABLE(held, HELD, 32),
    [RECORD_HOLDERS] = NAMED(holders, HOLDERS, 32),
    [RECORD_HELD_PATHS] = NAMED(held_paths, HELD_PATHS, 128),
    [RECORD_HELD_OBJECTS] = TABLE(held_objects, HELD_OBJECTS, MOST_ROWS),
    [RECORD_RAW] = TABLE(raw, OBJECTS, MOST_ROWS),
    [RECORD_RAW_ENDED] = TABLE(raw_ended, ENDED, MOST_ROWS),
    [RECORD_SNAPSHOTS] = TABLE(snapshots, SNAPSHOTS, 32),
};

struct record *record_of(enum record_kind kind)
{
    return &records[kind];
}

void record_clear_all(void)
{
    int kind;

    for (kind = 0; kind < RECORD_KINDS; kind++)
        records[kind].count = records[kind].text_size = 0;
}

int record_has_room(const struct record *r)
{
    return r->count < r->most_rows &&
           (r->text == NULL || r->text_size + RECORD_MOST_TEXT <= r->most_text);
}

/* Return the values of a column of a record.  They are contiguous, as put_column() needs
   them. */
static int64_t *column_of(const struct record *r, size_t number)
{
    return r->rows + number * r->most_rows;
}

void record_add(struct record *r, const int64_t *row)
{
    int64_t *to = r->rows + r->count;
    size_t i;

    INVARIANT(record_has_room(r));
    for (i = 0; i < r->columns; i++, to += r->most_rows)
        *to = row[i];
    r->count++;
}

void record_add_text(struct record *r, const int64_t *row, const char *text, size_t size)
{
    if (size > RECORD_MOST_TEXT)
        for (size = RECORD_MOST_TEXT;
             size > 0 && (text[size] & 0xc0) == 0x80; size--)
            ;           /* do not cut within a UTF-8 character */
    record_add(r, row);
    column_of(r, r->columns - 1)[r->count - 1] = (int64_t)size;
    memcpy(r->text + r->text_size, text, size);
    r->text_size += size;
}

size_t record_bound(const struct record *r)
{
    return FRAME + HEAD + r->columns * (COLUMN_HEAD + r->count * sizeof(int64_t)) +
           r->text_size;
}

/* ____________________________________________________________ */
/* encoding */

/* Write the lowest 'bytes' bytes of a number to 'p', and return their end. */
static char *put(char *p, uint64_t number, size_t bytes)
{
    memcpy(p, &number, bytes);          /* little-endian, like the processor */
    return p + bytes;
}

/* The values of a column */
struct column {
    const int64_t *values;
    size_t count;
};

/* The encoding of a column: each number is (value - base) / unit, or with a step (value
   - previous value - step) / unit. */
struct code {
    int width, has_step;
    uint64_t base, step, unit;
};

/* The numbers of the column that is being written */
static uint64_t numbers[MOST_ROWS];

/* Return the smallest width of 0, 1, 2, 4, ... 64 bits that holds numbers up to 'most'.
   The result is 0 for 0 bits, and the width's binary logarithm plus 1 otherwise. */
static int width_of(uint64_t most)
{
    int width = 0;

    while (width < WIDEST && most >> (width == 0 ? 0 : 1 << (width - 1)) != 0)
        width++;
    return width;
}

/* Return whether all values of a column are equal. */
static int is_constant(const struct column *c)
{
    return memcmp(c->values, c->values + 1, (c->count - 1) * sizeof *c->values) == 0;
}

/* Return the smaller one of two encodings of a column, without a unit: of the values
   themselves, or of the differences of consecutive values.  Stores the largest number to
   encode in '*range'. */
static struct code code_of(const struct column *c, uint64_t *range)
{
    int64_t least = c->values[0], most = least;
    int64_t least_step = INT64_MAX, most_step = INT64_MIN;
    struct code code = { 0, 0, 0, 0, 1 };
    uint64_t range_of_steps;
    size_t i;

    for (i = 1; i < c->count; i++) {
        int64_t v = c->values[i];
        int64_t step = (int64_t)((uint64_t)v - (uint64_t)c->values[i - 1]);
        least = v < least ? v : least;
        most = v > most ? v : most;
        least_step = step < least_step ? step : least_step;
        most_step = step > most_step ? step : most_step;
    }
    *range = (uint64_t)most - (uint64_t)least;
    range_of_steps = (uint64_t)most_step - (uint64_t)least_step;
    /* differences between 64-bit numbers may overflow */
    code.has_step = *range <= INT64_MAX / 2 &&
                    width_of(range_of_steps) < width_of(*range);
    code.base = (uint64_t)(code.has_step ? c->values[0] : least);
    code.step = code.has_step ? (uint64_t)least_step : 0;
    if (code.has_step)
        *range = range_of_steps;
    return code;
}

/* Store the numbers of a column, before the division by the unit, in 'numbers'. */
static void fill_numbers(const struct column *c, const struct code *code)
{
    const int64_t *v = c->values;
    size_t i;

    if (code->has_step) {
        numbers[0] = 0;
        for (i = 1; i < c->count; i++)
            numbers[i] = (uint64_t)v[i] - (uint64_t)v[i - 1] - code->step;
    }
    else
        for (i = 0; i < c->count; i++)
            numbers[i] = (uint64_t)v[i] - code->base;
}

/* Divide 'numbers' by the unit.  Returns 0, and changes nothing, if some number is no
   multiple of the unit.  The unit must be a constant, so that the compiler uses no
   division. */
static inline int divide_numbers(size_t count, uint64_t unit)
{
    size_t i;

    for (i = 0; i < count; i++)
        if (numbers[i] % unit != 0)
            return 0;
    for (i = 0; i < count; i++)
        numbers[i] /= unit;
    return 1;
}

/* Divide 'numbers' by the unit if all are multiples of the unit, and return whether they
   were divided. */
static int are_in_units(size_t count, int64_t unit)
{
    return unit == 8 ? divide_numbers(count, 8) :
           unit == 1000 && divide_numbers(count, 1000);
}

/* Write 'numbers' with a width other than 0 (width_of()), and return their end. */
static char *put_numbers(size_t count, int width, char *p)
{
    size_t bits = (size_t)1 << (width - 1), in_byte = bits < 8 ? 8 / bits : 1, i;
    unsigned packed = 0;

    switch (bits) {
    case 64:
        memcpy(p, numbers, count * 8);
        return p + count * 8;
    case 32:
        for (i = 0; i < count; i++)
            p = put(p, numbers[i], 4);
        return p;
    case 16:
        for (i = 0; i < count; i++)
            p = put(p, numbers[i], 2);
        return p;
    case 8:
        for (i = 0; i < count; i++)
            *p++ = (char)numbers[i];
        return p;
    }
    for (i = 0; i < count; i++) {
        packed |= (unsigned)numbers[i] << (i % in_byte * bits);
        if (i % in_byte == in_byte - 1 || i == count - 1) {
            *p++ = (char)packed;
            packed = 0;
        }
    }
    return p;
}

static char *put_column(const struct column *c, int64_t unit, char *p)
{
    struct code code = { 0, 0, (uint64_t)c->values[0], 0, 1 };
    uint64_t range = 0;

    if (!is_constant(c)) {
        code = code_of(c, &range);
        fill_numbers(c, &code);
    }
    if (range != 0 && are_in_units(c->count, unit))
        code.unit = (uint64_t)unit;
    code.width = width_of(range / code.unit);
    if (code.width == WIDEST) {         /* the values themselves */
        code.base = 0;
        code.unit = 1;
        memcpy(numbers, c->values, c->count * sizeof *numbers);
    }
    *p++ = (char)(code.width | (code.base != 0 ? HAS_BASE : 0) |
                  (code.has_step ? HAS_STEP : 0) | (code.unit != 1 ? HAS_UNIT : 0));
    if (code.base != 0)
        p = put(p, code.base, sizeof code.base);
    if (code.has_step)
        p = put(p, code.step, sizeof code.step);
    if (code.unit != 1)
        p = put(p, code.unit, 2);
    return code.width == 0 ? p : put_numbers(c->count, code.width, p);
}

static char *put_head(enum record_kind kind, size_t columns, size_t rows, char *p)
{
    *p++ = VERSION;
    *p++ = (char)kind;
    *p++ = (char)columns;
    *p++ = 0;
    return put(p, rows, 4);
}

/* Write the marker and the size of a record to its first bytes, 'start'.  Returns the
   end of the record. */
static char *end_record(char *start, char *p)
{
    *start = MARKER;
    (void)put(start + 1, (uint64_t)(p - start) - FRAME, sizeof(int64_t));
    return p;
}

char *record_encode(enum record_kind kind, char *start)
{
    struct record *r = &records[kind];
    char *p;
    size_t i;

    if (r->count == 0)
        return start;
    p = put_head(kind, r->columns, r->count, start + FRAME);
    for (i = 0; i < r->columns; i++) {
        struct column column = { column_of(r, i), r->count };
        p = put_column(&column, unit_of(r->units[i]), p);
    }
    if (r->text_size > 0)
        memcpy(p, r->text, r->text_size);
    p += r->text_size;
    r->count = r->text_size = 0;
    return end_record(start, p);
}

char *record_encode_settings(const char *text, size_t size, char *start)
{
    int64_t length = (int64_t)size;
    struct column column = { &length, 1 };
    char *p = put_column(&column, 1, put_head(RECORD_SETTINGS, 1, 1, start + FRAME));

    memcpy(p, text, size);
    return end_record(start, p + size);
}

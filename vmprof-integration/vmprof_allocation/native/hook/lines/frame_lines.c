#include "frame_lines.h"

#include "gc/roots.h"

#define MOST            512     /* maximum number of functions of a vmprof stack */
#define MOST_FRAMES     8192    /* maximum number of frames on the shadow stack */
#define MOST_ROOTS      ((size_t)1 << 18)       /* maximum words of the shadow stack */

/* The address of the pointer to the top of the shadow stack, and the offsets in frames. */
static const uintptr_t *const *roots_end;
static int fields[FRAME_FIELDS];

/* The frames on the shadow stack, innermost first, without adjacent duplicates. */
static uintptr_t frames[MOST_FRAMES];
static size_t count;
/* The state of the search, from the outermost frame on: the number of frames that remain,
   and the frames that were found. */
static size_t next;
static uintptr_t taken[MOST];
static size_t taken_count;

void frame_lines_prepare(uintptr_t roots, const int its_fields[FRAME_FIELDS])
{
    int i;

    roots_end = (const uintptr_t *const *)roots;
    for (i = 0; i < FRAME_FIELDS; i++)
        fields[i] = its_fields[i];
}

int frame_lines_are_known(void)
{
    return roots_end != NULL && fields[FRAME_TYPE] != 0;
}

void frame_lines_forget(void)
{
    count = 0;
}

static int64_t word_of(uintptr_t object, int field)
{
    return *(const int64_t *)(object + (uintptr_t)fields[field]);
}

/* Return whether the frame runs the function with this number. */
static int is_of(uintptr_t frame, int64_t code_number)
{
    uintptr_t code = (uintptr_t)word_of(frame, FRAME_CODE);

    /* a frame that is being made has no code yet */
    return code != 0 && word_of(code, CODE_NUMBER) == code_number;
}

/* Find all frames on the shadow stack of this thread. */
static void find_frames(void)
{
    struct roots roots = { roots_end[-1], *roots_end, 0 };
    uintptr_t root;

    count = 0;
    if (roots.start > roots.at || (size_t)(roots.at - roots.start) > MOST_ROOTS)
        return;
    while (count < MOST_FRAMES && (root = roots_next(&roots)) != 0)
        if (*(const uint32_t *)root == (uint32_t)fields[FRAME_TYPE] &&
            (count == 0 || frames[count - 1] != root))
            frames[count++] = root;
    if (count == MOST_FRAMES)
        count = 0;              /* the outermost frames are missing */
}

uint64_t frame_lines_find(uint64_t key)
{
    size_t i;

    find_frames();
    for (i = 0; i < count; i++)
        if (word_of(frames[i], FRAME_TOKEN) == 0)
            key = (key ^ (uint64_t)word_of(frames[i], FRAME_INSTRUCTION)) *
                  0x9e3779b97f4a7c15u;
    key ^= key >> 32;
    return key == 0 ? 1 : key;
}

/* ____________________________________________________________ */
/* line tables */

/* Return the line of an instruction from a table of Python 3.9, which begins at 'line'.
   The table has pairs of bytes: an increment of the instruction's offset in bytes, and an
   increment of the line. */
static int64_t line_of_pairs(const unsigned char *table, int64_t size, int64_t line,
                             int64_t instruction)
{
    int64_t i, at = 0;

    for (i = 0; i + 1 < size; i += 2) {
        at += table[i];
        if (at > instruction)
            break;
        line += (signed char)table[i + 1];
    }
    return line;
}

/* Return the line of an instruction from a table of PyPy 3.10 and later, or 0.
 *
 * The table has an entry for each instruction.  An entry begins with the line relative to
 * the first line, plus 1, with 7 bits per byte; 0 means no line.  After a line, either a
 * byte 0 follows, or three bytes: columns, plus 1, and lines.
 */
static int64_t line_of_each(const unsigned char *table, int64_t size, int64_t first,
                            int64_t instruction)
{
    int64_t at = 0, i, delta = 0;
    int shift;

    for (i = 0; i <= instruction / 2; i++) {
        delta = 0;
        for (shift = 0; at < size && table[at] & 0x80 && shift < 28; shift += 7)
            delta |= (int64_t)(table[at++] & 0x7f) << shift;
        if (at >= size)
            return 0;
        delta |= (int64_t)table[at++] << shift;
        if (delta == 0)
            continue;
        if (at >= size)
            return 0;
        at += table[at] == 0 ? 1 : 3;
    }
    return delta == 0 ? 0 : first + delta - 1;
}

/* Return the line that a frame is executing, or 0 if the line is unknown. */
static uint32_t line_of(uintptr_t frame)
{
    int64_t instruction = word_of(frame, FRAME_INSTRUCTION), first, line, size;
    uintptr_t code = (uintptr_t)word_of(frame, FRAME_CODE), table;
    const unsigned char *bytes;

    /* compiled code runs the frame, or the frame has not started */
    if (word_of(frame, FRAME_TOKEN) != 0 || instruction < 0)
        return 0;
    first = word_of(code, CODE_FIRST_LINE);
    table = (uintptr_t)word_of(code, CODE_TABLE);
    if (table == 0)
        return 0;
    bytes = (const unsigned char *)(table + (uintptr_t)fields[STRING_START]);
    size = word_of(table, STRING_LENGTH);
    line = fields[CODE_TABLE_KIND] == 0
        ? line_of_pairs(bytes, size, first, instruction)
        : line_of_each(bytes, size, first, instruction);
    return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* The previous function of the search, which is the caller of the next one: its code, or 0
   if there is no caller, and its frame, or 0 if the frame is unknown. */
static struct {
    int64_t code;
    uintptr_t frame;
    int is_compiled;
} caller;

static void put_caller(int64_t code, uintptr_t frame, int is_compiled)
{
    caller.code = code;
    caller.frame = frame;
    caller.is_compiled = is_compiled;
}

void frame_lines_from_outermost(void)
{
    next = count;
    taken_count = 0;
    put_caller(0, 0, 0);
}

void frame_lines_compiled(int64_t code)
{
    put_caller(code, 0, 1);
}

static int is_taken(uintptr_t frame)
{
    size_t i;

    for (i = taken_count; i > 0; i--)
        if (taken[i - 1] == frame)
            return 1;
    return 0;
}

/* Return whether the frame's caller may be the previous function. */
static int is_called_by_caller(uintptr_t frame)
{
    uintptr_t back = (uintptr_t)word_of(frame, FRAME_CALLER);
    uint32_t type = back == 0 ? 0 : *(const uint32_t *)back;

    if (back != 0 && type == (uint32_t)fields[REFERENCE_TYPE]) {
        back = (uintptr_t)word_of(back, REFERENCE_FORCED);
        if (back == 0)
            return caller.is_compiled;  /* the caller has no frame yet */
        type = *(const uint32_t *)back;
    }
    if (back == 0 || type != (uint32_t)fields[FRAME_TYPE])
        return caller.code == 0;
    return caller.frame != 0 ? back == caller.frame : is_of(back, caller.code);
}

/* Return whether this code has exactly 'calls' frames on the shadow stack, without the
   frames that compiled code runs. */
static int are_frames(int64_t code, int calls)
{
    uintptr_t before = 0;
    size_t i, j;

    for (i = 0; i < count && calls >= 0; i++) {
        if (frames[i] == before || !is_of(frames[i], code) ||
            word_of(frames[i], FRAME_TOKEN) != 0)
            continue;
        before = frames[i];
        for (j = 0; frames[j] != before; j++)
            ;
        calls -= j == i;
    }
    return calls == 0;
}

uint32_t frame_lines_interpreted(int64_t code, int calls)
{
    int is_certain = caller.frame != 0 || caller.code == 0 || calls <= 1 ||
                     are_frames(code, calls);
    size_t i;

    for (i = is_certain ? next : 0; i > 0; i--) {
        uintptr_t frame = frames[i - 1];
        if (!is_of(frame, code) || is_taken(frame) || !is_called_by_caller(frame))
            continue;
        next = i - 1;
        if (taken_count < MOST)
            taken[taken_count++] = frame;
        put_caller(code, frame, 0);
        return line_of(frame);
    }
    put_caller(code, 0, 0);
    return 0;
}

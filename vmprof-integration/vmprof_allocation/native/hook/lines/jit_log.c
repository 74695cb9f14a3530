#define _GNU_SOURCE
#include "jit_log.h"

#include <limits.h>
#include <string.h>

#define VERSION         4
#define OPERATIONS      1024    /* maximum number of kinds of operations */
#define VALUES          16      /* maximum number of values of a merge point */
#define LINE_NUMBER     2       /* meaning of a value of a merge point */
#define NO_FILE         INT_MAX /* no process has this many descriptors */

enum {
    INPUT_ARGUMENTS = 0x11, OPERATION_NAMES, OPERATION, OPERATION_WITH_DESCR, CODE, OFFSET,
    RECORDED, OPTIMIZED, ASSEMBLED, PATCH, TRACE, COUNTER, VALUES_OF_LINES, HEADER, LINE,
    PREFIX, ABORTED, SOURCE, REDIRECT, CALLBACK
};

static const struct jit_log_reader *reader;     /* NULL if nothing is read */
static int has_begun;                   /* whether a header of this version was read */
static int is_wrong;
static uint8_t kinds[OPERATIONS];       /* enum jit_operation, by the log's number of a
                                           kind of operation */
static int is_told;                     /* whether the present stage is passed to the
                                           reader */
static uint64_t needs_before;           /* hash of the state that the previous guard
                                           restores if it fails */
static uint64_t others;                 /* bit set of the JIT drivers of other
                                           interpreters: is_others() */
static uint32_t offset_before;          /* last offset; the log has only its lower 16
                                           bits */
static struct {
    uint8_t meaning, type;              /* of a value of the trace's merge points */
} values[VALUES];
static int value_count;

/* The bytes that are being read.  'is_short' is set if they end within a record. */
static struct {
    const unsigned char *at, *end;
    int is_short;
} in;

/* Return the next 'size' bytes of the log.  If the data end before, sets in.is_short, and
   returns zeros, or NULL for more than 8 bytes. */
static const unsigned char *take(size_t size)
{
    static const unsigned char zeros[8];
    const unsigned char *at = in.at;

    if ((size_t)(in.end - at) < size) {
        in.is_short = 1;
        in.at = in.end;
        return size <= sizeof zeros ? zeros : NULL;
    }
    in.at += size;
    return at;
}

static uint64_t number(size_t bytes)
{
    uint64_t value = 0;

    memcpy(&value, take(bytes), bytes);
    return value;
}

static const char *text(size_t *size)
{
    *size = number(4);
    return (const char *)take(*size);
}

static void skip_text(void)
{
    size_t size;

    (void)text(&size);
}

/* ____________________________________________________________ */
/* operations */

static int begins(const char *s, size_t size, const char *with)
{
    return size >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

static int is(const char *s, size_t size, const char *name)
{
    return size == strlen(name) && begins(s, size, name);
}

/* Return the kind of the operation with this name. */
static enum jit_operation kind_of(const char *s, size_t size)
{
    if (is(s, size, "guard_always_fails"))
        return JIT_ANY_GUARD;
    if (is(s, size, "guard_exception"))
        return JIT_EXCEPTION;
    if (begins(s, size, "guard_"))
        return JIT_GUARD;
    if (is(s, size, "call_malloc_nursery_varsize_frame"))
        return JIT_MALLOC_FRAME;
    if (begins(s, size, "call_malloc_") || is(s, size, "nursery_ptr_increment"))
        return JIT_MALLOC;
    if (begins(s, size, "cond_call_gc_wb"))
        return JIT_OTHER;
    if (begins(s, size, "call_may_force_") || begins(s, size, "call_assembler_"))
        return JIT_PYTHON_CALL;
    if (begins(s, size, "call_") || begins(s, size, "cond_call"))
        return JIT_CALL;
    if (is(s, size, "new") || begins(s, size, "new_") || is(s, size, "newstr") ||
        is(s, size, "newunicode"))
        return JIT_NEW;
    if (is(s, size, "copystrcontent") || is(s, size, "copyunicodecontent"))
        return JIT_COPY;
    if (is(s, size, "check_memory_error"))
        return JIT_CHECK_MEMORY;
    if (is(s, size, "enter_portal_frame"))
        return JIT_ENTER;
    return is(s, size, "leave_portal_frame") ? JIT_LEAVE : JIT_OTHER;
}

static void read_names(void)
{
    uint64_t count = number(2), i;

    for (i = 0; i < count; i++) {
        uint64_t which = number(2);
        size_t size;
        const char *name = text(&size);
        if (!in.is_short && which < OPERATIONS)
            kinds[which] = (uint8_t)kind_of(name, size);
    }
}

/* Return the number after 'which' commas, as in "result,driver,function". */
static int64_t argument(const char *s, size_t size, int which)
{
    const char *end = s + size, *at = s;
    int64_t value = 0;
    int commas = 0;

    while (at < end && commas < which)
        commas += *at++ == ',';
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    return value;
}

/* Return whether the guard with these arguments is copied.  They then contain its descr:
   <ResumeGuardCopiedDescr object at ...> */
static int is_copied(const char *s, size_t size)
{
    return memmem(s, size, "<ResumeGuardCopied", strlen("<ResumeGuardCopied")) != NULL;
}

static uint64_t hash(const char *s, size_t size)
{
    uint64_t value = size + 1;

    while (size > 0)
        value = (value ^ (unsigned char)s[--size]) * 0x9e3779b97f4a7c15u;
    return value;
}

/* Return whether a guard is copied: 0, JIT_COPIED, or JIT_PERHAPS_COPIED.  The optimizer
   may replace a copied guard by a stronger one (replace_guard() in RPython).  The log does
   not contain this replacement, but the new guard restores the same state as the previous
   guard. */
static int64_t copied(const char *s, size_t size, const char *needs, size_t needs_size)
{
    uint64_t before = needs_before;

    needs_before = needs == NULL ? 0 : hash(needs, needs_size);
    return is_copied(s, size) ? JIT_COPIED :
           before != 0 && before == needs_before ? JIT_PERHAPS_COPIED : 0;
}

/* Return whether the operation enters or leaves an interpreter other than Python's, such as
   the interpreter of generators.  Such an interpreter is entered without a function, and
   is not left if it ends with an exception. */
static int is_others(enum jit_operation kind, const char *s, size_t size)
{
    int64_t driver = argument(s, size, 1) & 63;

    if (kind == JIT_ENTER && argument(s, size, 2) == 0)
        others |= (uint64_t)1 << driver;
    return (kind == JIT_ENTER || kind == JIT_LEAVE) && others >> driver & 1;
}

static void read_operation(int has_descr)
{
    uint32_t which = (uint32_t)number(2);
    size_t size, needs_size;
    const char *arguments = text(&size), *needs;
    uint64_t descr = has_descr ? number(8) : 0;
    int64_t value = 0;
    enum jit_operation kind = which < OPERATIONS ? kinds[which] : JIT_OTHER;

    needs = text(&needs_size);
    if (in.is_short || !is_told || is_others(kind, arguments, size))
        return;
    if (kind == JIT_ENTER)
        value = argument(arguments, size, 2);
    else if (kind == JIT_GUARD || kind == JIT_ANY_GUARD || kind == JIT_EXCEPTION)
        value = copied(arguments, size, needs, needs_size);
    reader->operation(kind, which, descr, value);
}

/* ____________________________________________________________ */
/* records */

static void read_trace(void)
{
    size_t size;
    const char *type;
    uint64_t guard;
    int is_bridge;

    (void)number(8);
    type = text(&size);
    is_bridge = !in.is_short && is(type, size, "bridge");
    guard = number(8);
    skip_text();
    if (!in.is_short)
        reader->trace(is_bridge ? guard : 0);
}

static void read_offset(void)
{
    uint32_t offset = (uint32_t)number(2);
    size_t size;

    (void)text(&size);
    if (in.is_short || !is_told)
        return;
    offset |= offset_before & ~0xffffu;
    if (offset < offset_before)
        offset += 0x10000;
    offset_before = offset;
    reader->offset(offset, (uint32_t)size);
}

static void read_values(void)
{
    uint64_t count = number(2), i;

    value_count = 0;
    for (i = 0; i < count; i++) {
        uint8_t meaning = (uint8_t)number(1), type = (uint8_t)number(1);
        if (i < VALUES && !in.is_short) {
            values[i].meaning = meaning;
            values[i].type = type;
            value_count = (int)i + 1;
        }
    }
    if (count > VALUES)
        is_wrong = 1;
}

static void read_line(void)
{
    int64_t line = 0;
    int i;

    for (i = 0; i < value_count; i++) {
        uint64_t how = number(1);       /* 0xef if the text is only the prefix */
        if (values[i].type == 's') {
            if (how != 0xef)
                skip_text();
        } else if (values[i].meaning == LINE_NUMBER)
            line = (int64_t)number(8);
        else
            (void)number(8);
    }
    if (!in.is_short && is_told)
        reader->line(line);
}

static void read_stage(int mark)
{
    (void)number(8);
    if (in.is_short)
        return;
    is_told = mark != RECORDED;
    offset_before = 0;
    needs_before = 0;
    value_count = 0;
    if (mark == OPTIMIZED)
        reader->optimized();
    else if (mark == ASSEMBLED)
        reader->assembled();
}

static void read_code(void)
{
    uintptr_t start = number(8), end = number(8);

    if (!in.is_short && is_told)
        reader->code(start, end);
}

static void read_header(void)
{
    uint64_t version = number(2), is_32_bit = number(1);

    skip_text();
    has_begun = 1;
    if (!in.is_short && (version != VERSION || is_32_bit))
        is_wrong = 1;
}

/* End the present stage, because another kind of record follows. */
static void end_stage(void)
{
    if (is_told)
        reader->end();
    is_told = 0;
}

static void read_record(void)
{
    int mark = (int)number(1);

    switch (mark) {
    case OPERATION: case OPERATION_WITH_DESCR:
        read_operation(mark == OPERATION_WITH_DESCR);
        return;
    case OFFSET:
        read_offset();
        return;
    case LINE:
        read_line();
        return;
    case VALUES_OF_LINES:
        read_values();
        return;
    case PREFIX:
        (void)number(1);
        skip_text();
        return;
    case INPUT_ARGUMENTS:
        skip_text();
        return;
    case CODE:
        read_code();
        return;
    }
    end_stage();
    switch (mark) {
    case HEADER:
        read_header();
        break;
    case OPERATION_NAMES:
        read_names();
        break;
    case TRACE:
        read_trace();
        break;
    case RECORDED: case OPTIMIZED: case ASSEMBLED:
        read_stage(mark);
        break;
    case PATCH:
        (void)take(16);
        if (!in.is_short)
            reader->patched();
        break;
    case CALLBACK:
        (void)take(16);
        break;
    case COUNTER:
        (void)take(17);
        break;
    case REDIRECT:
        (void)take(24);
        break;
    case ABORTED:
        (void)take(8);
        break;
    default:
        is_wrong = 1;
    }
}

/* ____________________________________________________________ */

int jit_log_begin(const struct jit_log_reader *to)
{
    reader = to;
    has_begun = is_wrong = is_told = 0;
    others = 0;
    memset(kinds, 0, sizeof kinds);
    return NO_FILE;
}

int jit_log_is_as_known(void)
{
    return has_begun && !is_wrong;
}

int jit_log_is(int fd)
{
    return fd == NO_FILE;
}

void jit_log_write(const void *data, size_t size)
{
    if (reader == NULL)
        return;
    in.at = data;
    in.end = in.at + size;
    in.is_short = 0;
    while (in.at < in.end && !is_wrong) {
        read_record();
        is_wrong |= in.is_short;
    }
}

void jit_log_end(void)
{
    reader = NULL;
}

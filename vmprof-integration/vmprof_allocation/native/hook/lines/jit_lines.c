#define _GNU_SOURCE
#include "jit_lines.h"

#include <string.h>

#include "frame_lines.h"
#include "jit_log.h"
#include "machines/jit_call.h"
#include "table.h"

/* The running functions at a place of a trace: the innermost function, and the state of
   the function into which it is inlined. */
struct state {
    uint32_t outer : 31;        /* index of the state of that function; 0 if the innermost
                                   function is not inlined */
    uint32_t is_doubtful : 1;   /* whether one of the functions may have been left */
    uint32_t line : 31;         /* 0 if the line is unknown */
    uint32_t is_left : 1;       /* whether the outermost function has been left and
                                   returns */
    int64_t function;           /* 0 for the function in which the trace begins, or
                                   NOT_KNOWN */
};
#define NOT_KNOWN       (-1)    /* the function and its outer functions are unknown */

/* A place in machine code that makes a call or allocates. */
struct place {
    uint32_t start, end;        /* offsets of the operation in bytes */
    uint32_t state;
};

/* A span of machine code with the same functions, up to the next span.  It replaces
   PyPy's table on machines where the table is incomplete (jit_table_is_whole()). */
struct span {
    uint32_t start;
    uint32_t state;             /* index of the state; 0 until it is known, or if no
                                   function is known here */
    int64_t enters;             /* function that is entered at the start, or LEFT */
};
#define LEFT            (-1)            /* a function ends at the start of the span */
#define NOT_TOLD        UINT32_MAX      /* unknown start of a span */

/* The machine code of one trace. */
struct trace {
    uintptr_t start, end;
    size_t places, count;       /* index of the first place; number of places */
    size_t spans, span_count;   /* index of the first span, which begins with the trace;
                                   number of spans */
    uint32_t first;             /* state in which the trace begins */
};

/* An operation of the trace that is being read: a call, an allocation, or a guard.  The
   optimized stage also has the beginnings and ends of functions, and lines. */
struct event {
    uint32_t kind;              /* number of the operation, or one of the values
                                   below, or both for a guard */
    uint32_t state;             /* 0 until it is known */
    int64_t value;              /* descr of a guard, number of a function, or line */
    int copied;                 /* for a guard, 0, JIT_COPIED, or JIT_PERHAPS_COPIED */
    int is_raised;              /* for a guard, whether it is a JIT_EXCEPTION */
    int is_python;              /* whether it is a JIT_PYTHON_CALL */
    uint32_t start, size;       /* its machine code in bytes; 0 if it is unknown */
};
#define GUARD           0x10000u
#define ANY_GUARD       (GUARD | 0xffffu)
#define NEW             0x20000u        /* an allocation of any kind */
#define CALL            0x30000u        /* a call of any kind */
#define ENTER           0x40000u
#define LEAVE           0x50000u
#define LINE            0x60000u

#define MOST            ((size_t)1 << 22)       /* maximum of states and spans, which
                                                   take 64 MiB each, and of places,
                                                   which take 48 MiB */
#define MOST_GUARDS     ((size_t)1 << 20)

#define TABLE(type) struct { type *at; size_t count, room; }
static TABLE(struct state) states;      /* state 0 means that there is no state */
static TABLE(struct place) places;
static TABLE(struct span) spans;
static TABLE(struct trace) traces;      /* sorted by address, without overlaps */
static TABLE(struct event) optimized, assembled;
/* A hash table of guards with open addressing.  'state' is the state in which a guard
   fails.  'is_doubtful' is set if fewer functions may run there. */
static struct { uint64_t descr; uint32_t state : 31, is_doubtful : 1; } *guards;
static size_t guards_room, guards_count;

static int is_on;
static struct {
    int is_optimized;           /* whether the present stage is the optimized one */
    int is_there;               /* whether the trace has an optimized stage */
    int is_lost;                /* whether there was not enough memory */
    int is_of_unknown;          /* whether the guard is unknown, or the trace is an
                                   entry bridge */
    int is_doubtful;            /* whether all further states of the trace are doubtful */
    uint32_t first;             /* state in which the trace begins */
    uintptr_t start, end;
    /* what begins at the next offset: nothing that is needed, the last event, the frame
       for the next call, or the last span */
    enum { OF_NONE, OF_LAST, OF_NEXT, OF_SPAN } offset_is;
    uint32_t start_before;      /* offset where the frame for the next call is allocated,
                                   or 0 */
    uint32_t told_to;           /* end of the last operation with an offset */
    size_t not_told, not_told_count;    /* index of the first event after that operation;
                                           number of such events */
    size_t first_span;          /* index of the trace's first span */
} now;

#define ADD(table) (table_has_room((void **)&(table).at, &(table).room, (table).count, \
                                   sizeof *(table).at, MOST) \
                    ? &(table).at[(table).count++] : NULL)
#define GIVE_BACK(table) do { \
        table_give_back((table).at, (table).room, sizeof *(table).at); \
        memset(&(table), 0, sizeof (table)); \
    } while (0)

/* Return the index of a new state, or 0 if there is not enough memory. */
static uint32_t new_state(uint32_t outer, int64_t function, uint32_t line)
{
    struct state *state = ADD(states);

    if (state == NULL) {
        now.is_lost = 1;
        return 0;
    }
    state->outer = outer & INT32_MAX;
    state->is_doubtful = now.is_doubtful != 0;
    state->function = function;
    state->line = line & INT32_MAX;
    state->is_left = 0;
    return (uint32_t)(states.count - 1);
}

/* ____________________________________________________________ */
/* guards, at which bridges begin */

/* Return the slot of the guard 'descr'.  The slot is empty if the guard is unknown. */
static size_t slot_of(uint64_t descr)
{
    size_t i = descr * 0x9e3779b97f4a7c15u >> 20 & (guards_room - 1);

    while (guards[i].descr != 0 && guards[i].descr != descr)
        i = (i + 1) & (guards_room - 1);
    return i;
}

static void forget_guards(void)
{
    table_give_back(guards, guards_room, sizeof *guards);
    guards = NULL;
    guards_room = guards_count = 0;
}

static int grow_guards(void)
{
    void *before = guards, *table = NULL;
    size_t before_room = guards_room, room = 0, i;

    while (room < 2 * before_room || room == 0)
        if (!table_has_room(&table, &room, room, sizeof *guards, MOST_GUARDS)) {
            table_give_back(table, room, sizeof *guards);
            return 0;
        }
    guards = table;
    guards_room = room;
    for (i = 0; i < before_room; i++) {
        uint64_t entry[2];
        memcpy(entry, (char *)before + i * sizeof *guards, sizeof entry);
        if (entry[0] != 0)
            memcpy(&guards[slot_of(entry[0])], entry, sizeof entry);
    }
    table_give_back(before, before_room, sizeof *guards);
    return 1;
}

/* Store the state in which the guard 'descr' fails.  A bridge from the guard begins in this
   state. */
static void put_guard(uint64_t descr, uint32_t state, int is_doubtful)
{
    size_t i;

    if (descr == 0)
        return;
    if (2 * (guards_count + 1) > guards_room && !grow_guards())
        return;                 /* bridges from this guard have no lines */
    i = slot_of(descr);
    guards_count += guards[i].descr == 0;
    guards[i].descr = descr;
    guards[i].state = state & INT32_MAX;
    guards[i].is_doubtful = is_doubtful != 0;
}

/* ____________________________________________________________ */
/* one trace */

/* Return a copy of a state.  The copy is doubtful if now.is_doubtful is set. */
static uint32_t copy_of(uint32_t state)
{
    struct state is = states.at[state];

    return new_state(is.outer, is.function, is.line);
}

/* Begin a trace, in the state of its guard if it is a bridge. */
static void put_trace(uint64_t guard)
{
    size_t i;

    memset(&now, 0, sizeof now);
    if (guard != 0 && guards_room != 0) {
        i = slot_of(guard);
        now.first = guards[i].state;
        now.is_doubtful = guards[i].is_doubtful || states.at[now.first].is_doubtful;
        if (guards[i].is_doubtful)
            now.first = new_state(states.at[now.first].outer, states.at[now.first].function,
                                  0);
    }
    now.is_of_unknown = guard != 0 && now.first == 0;
    if (now.first == 0)
        now.first = new_state(0, 0, 0);
}

/* Mark the present trace as the bridge of a guard.  If the guard is not in a known trace,
   the functions in which the bridge begins are unknown. */
static void put_patched(void)
{
    size_t i;

    if (now.is_of_unknown && now.first != 0)
        for (i = now.first; i < states.count; i++)
            if (states.at[i].function == 0)
                states.at[i].function = NOT_KNOWN;
    now.is_of_unknown = 0;
}

static void begin_optimized(void)
{
    now.is_optimized = now.is_there = 1;
    optimized.count = 0;
}

static void put_span(uint32_t start, int64_t enters)
{
    struct span *span = ADD(spans);

    if (span == NULL)
        now.is_lost = 1;
    else
        *span = (struct span){ start, 0, enters };
}

static void begin_assembled(void)
{
    now.is_optimized = 0;
    now.start_before = now.told_to = 0;
    now.not_told_count = 0;
    assembled.count = 0;
    now.first_span = spans.count;
    if (!jit_table_is_whole())
        put_span(0, 0);
}

static void put_code(uintptr_t start, uintptr_t end)
{
    now.start = start;
    now.end = end;
}

static int is_guard(const struct event *event)
{
    return (event->kind & ~0xffffu) == GUARD;
}

/* Add an event to the present stage. */
static void put_event(uint32_t kind, int64_t value, int copied)
{
    struct event *event = now.is_optimized ? ADD(optimized) : ADD(assembled);

    if (event == NULL) {
        now.is_lost = 1;
        return;
    }
    memset(event, 0, sizeof *event);
    event->kind = kind;
    event->value = value;
    event->copied = copied;
    if (!now.is_optimized && !is_guard(event) && now.not_told_count++ == 0)
        now.not_told = assembled.count - 1;
}

static void tell_python(void)
{
    if (now.is_optimized && optimized.count > 0)
        optimized.at[optimized.count - 1].is_python = 1;
}

static void tell_raised(void)
{
    if (now.is_optimized && optimized.count > 0)
        optimized.at[optimized.count - 1].is_raised = 1;
}

/* Handle an operation of either stage (struct jit_log_reader). */
static void put_operation(enum jit_operation kind, uint32_t number, uint64_t descr,
                          int64_t value)
{
    now.offset_is = OF_NONE;
    switch (kind) {
    case JIT_GUARD: case JIT_EXCEPTION:
        put_event(GUARD | number, (int64_t)descr, (int)value);
        if (kind == JIT_EXCEPTION)
            tell_raised();
        break;
    case JIT_ANY_GUARD:
        put_event(ANY_GUARD, (int64_t)descr, (int)value);
        break;
    case JIT_NEW:
        put_event(NEW, 0, 0);
        break;
    case JIT_MALLOC:
        put_event(NEW, 0, 0);
        now.offset_is = OF_LAST;
        break;
    case JIT_MALLOC_FRAME:
        now.offset_is = OF_NEXT;
        break;
    case JIT_CALL: case JIT_PYTHON_CALL:
        put_event(number, 0, 0);
        if (kind == JIT_PYTHON_CALL)
            tell_python();
        now.offset_is = OF_LAST;
        break;
    case JIT_COPY:
        put_event(CALL, 0, 0);
        break;
    case JIT_CHECK_MEMORY:
        if (assembled.count > 0)
            assembled.at[assembled.count - 1].kind = NEW;
        break;
    case JIT_ENTER: case JIT_LEAVE:
        if (now.is_optimized)
            put_event(kind == JIT_ENTER ? ENTER : LEAVE, value, 0);
        else if (!jit_table_is_whole()) {
            put_span(NOT_TOLD, kind == JIT_ENTER ? value : LEFT);
            now.offset_is = OF_SPAN;
        }
        break;
    case JIT_OTHER:
        break;
    }
}

/* Find the place of an operation for which the log has no offset.  If an operation is
 * assembled together with the following guard, as calls are on AArch64, the log lacks its
 * offset.  If there is only one such operation, it lies between the offsets of the
 * adjacent operations.
 */
static void put_what_was_not_told(uint32_t start)
{
    struct event *event = &assembled.at[now.not_told];
    size_t count = now.not_told_count;

    /* The last operation has an offset now, or its offset is not needed. */
    if (count > 0 && (now.offset_is == OF_LAST ||
                      assembled.at[assembled.count - 1].kind == CALL))
        count--;
    if (count == 1 && start > now.told_to) {
        event->start = now.told_to;
        event->size = start - now.told_to;
    }
    now.not_told_count = 0;
}

/* Handle the place of the previous operation in the machine code, in bytes. */
static void put_offset(uint32_t start, uint32_t size)
{
    if (now.is_optimized)
        return;
    put_what_was_not_told(start);
    now.told_to = start + size;
    if (now.offset_is == OF_NONE)
        return;
    if (now.offset_is == OF_SPAN) {
        if (spans.count > now.first_span)
            spans.at[spans.count - 1].start = start;
    }
    else if (now.offset_is == OF_NEXT)
        now.start_before = start;
    else if (assembled.count > 0) {
        struct event *last = &assembled.at[assembled.count - 1];
        last->start = now.start_before != 0 ? now.start_before : start;
        last->size = start + size - last->start;
        now.start_before = 0;
    }
}

static void put_line(int64_t line)
{
    if (now.is_optimized)
        put_event(LINE, line, 0);
}

/* ____________________________________________________________ */
/* the state (struct state) of each operation of the optimized trace */

/* Return the state after the innermost function of 'state' has been left. */
static uint32_t leave(uint32_t state)
{
    struct state is = states.at[state];

    if (is.outer != 0 || is.is_left || is.line == 0)
        return is.outer;
    state = new_state(0, is.function, is.line);
    states.at[state].is_left = state != 0;
    return state;
}

/* Let the frame provide the line of a function that calls its own loop, from the event
 * 'call' up to the event 'left', the end of the function.  A guard between these events
 * fails in the state of the outer function, because the function has already run then.
 * Returns this state, or 'of_guard' without such a guard.
 */
static uint32_t leave_to_frame(size_t call, size_t left, uint32_t of_guard)
{
    struct state is = states.at[optimized.at[call].state];
    uint32_t state = new_state(is.outer, is.function, JIT_LINES_IN_FRAME);
    size_t i;

    for (i = call; i < left; i++) {
        optimized.at[i].state = state;
        if (is_guard(&optimized.at[i])) {
            if (optimized.at[i].copied != JIT_COPIED)
                of_guard = is.outer;
            put_guard((uint64_t)optimized.at[i].value, of_guard, 0);
        }
    }
    return of_guard;
}

/* Mark the states from the event 'call' to the event 'guard' as doubtful, because the call
   has raised.  If the call was to the function's own loop, the log does not contain the end
   of the function.  Returns the new state. */
static uint32_t doubt_from(size_t call, size_t guard)
{
    uint32_t state;
    size_t i;

    now.is_doubtful = 1;
    state = copy_of(optimized.at[call].state);
    for (i = call; i <= guard; i++) {
        optimized.at[i].state = state;
        if (is_guard(&optimized.at[i]))
            put_guard((uint64_t)optimized.at[i].value, state, 1);
    }
    return state;
}

/* Find the state of each event in the optimized stage, and store the states of its
   guards. */
static void follow_states(void)
{
    uint32_t state = now.first, of_guard = state;
    int is_doubtful = 0;                /* whether 'of_guard' is doubtful */
    size_t i, call = SIZE_MAX;          /* the last call that may run Python functions,
                                           since the last line */

    for (i = 0; i < optimized.count; i++) {
        struct event *event = &optimized.at[i];
        struct state is = states.at[state];
        if (is.is_left && (event->kind == ENTER || event->kind == LINE))
            state = 0;          /* it is unknown which function runs after the
                                   outermost one */
        else if (event->kind == ENTER && state != 0)
            state = new_state(state, event->value, 0);
        else if (event->kind == LEAVE)
            state = leave(state);
        else if (event->kind == LINE && state != 0 && is.line != (uint32_t)event->value)
            state = new_state(is.outer, is.function, (uint32_t)event->value);
        else if (is_guard(event)) {
            if (event->copied != JIT_COPIED) {
                is_doubtful = event->copied == JIT_PERHAPS_COPIED && of_guard != state;
                of_guard = state;
            }
            put_guard((uint64_t)event->value, of_guard, is_doubtful);
        }
        if (event->kind == LEAVE && now.is_doubtful && !states.at[state].is_doubtful &&
            state != 0)
            state = copy_of(state);
        event->state = state;
        if (event->is_python && state != 0 && !states.at[state].is_left)
            call = i;
        else if (event->kind == LEAVE && call != SIZE_MAX) {
            of_guard = leave_to_frame(call, i, of_guard);
            if (states.at[state].is_left)
                state = event->state = 0;       /* the line of the return is unknown */
        }
        if (event->is_raised && call != SIZE_MAX)
            state = of_guard = doubt_from(call, i);
        if (event->kind >= ENTER)
            call = SIZE_MAX;
    }
}

/* Find the states of the spans in the assembled stage.  Returns 0 if the beginning of a
   span is unknown. */
static int follow_spans(void)
{
    uint32_t state = now.first;
    size_t i;

    for (i = now.first_span; i < spans.count; i++) {
        struct span *span = &spans.at[i];
        if (span->start == NOT_TOLD)
            return 0;
        if (span->enters == LEFT) {
            state = states.at[state].outer;
            if (state != 0 && now.is_doubtful && !states.at[state].is_doubtful)
                state = copy_of(state);
        }
        else if (i > now.first_span && state != 0)
            state = new_state(state, span->enters, 0);
        span->state = state;
    }
    return 1;
}

/* ____________________________________________________________ */
/* matching of the two stages */

/* Remove the events that only the optimized stage has. */
static void leave_out_states(void)
{
    size_t i, left = 0;

    for (i = 0; i < optimized.count; i++)
        if (optimized.at[i].kind < ENTER)
            optimized.at[left++] = optimized.at[i];
    optimized.count = left;
}

static size_t next_guard(const struct event *events, size_t count, size_t from)
{
    while (from < count && !is_guard(&events[from]))
        from++;
    return from;
}

static int are_alike(const struct event *one, const struct event *other)
{
    return one->kind == other->kind || (one->kind == CALL && other->kind < GUARD);
}

/* Return whether the events between two guards are the same in both stages, in the same
   order. */
static int fits(const struct event *one, size_t count, const struct event *other,
                size_t other_count)
{
    size_t i;

    if (count != other_count)
        return 0;
    for (i = 0; i < count; i++)
        if (!are_alike(&one[i], &other[i]))
            return 0;
    return 1;
}

static void put_place(const struct event *event, uint32_t state)
{
    struct place *place;

    if (event->size == 0 || state == 0)
        return;
    place = ADD(places);
    if (place == NULL) {
        now.is_lost = 1;
        return;
    }
    place->start = event->start;
    place->end = event->start + event->size;
    place->state = state;
}

/* Store the places of the events that match in the two stages.  Returns 0 if the guards of
   the stages differ. */
static int put_places(void)
{
    const struct event *one = optimized.at, *other = assembled.at;
    size_t i = 0, j = 0, k;

    for (;;) {
        size_t to = next_guard(one, optimized.count, i);
        size_t other_to = next_guard(other, assembled.count, j);
        if (fits(one + i, to - i, other + j, other_to - j))
            for (k = 0; k < to - i; k++)
                put_place(&other[j + k], one[i + k].state);
        if (to == optimized.count || other_to == assembled.count)
            return to == optimized.count && other_to == assembled.count;
        if (one[to].kind != other[other_to].kind && one[to].kind != ANY_GUARD)
            return 0;
        i = to + 1;
        j = other_to + 1;
    }
}

/* Return the index of the first trace that ends after 'address'. */
static size_t find(uintptr_t address)
{
    size_t low = 0, high = traces.count, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (traces.at[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Add the present trace, and remove traces at the same addresses, whose code is gone. */
static void add_trace(size_t first_place)
{
    size_t at = find(now.start), gone = at;
    struct trace *trace;

    while (gone < traces.count && traces.at[gone].start < now.end)
        gone++;
    if (gone == at) {
        if (ADD(traces) == NULL)
            return;
        memmove(&traces.at[at + 1], &traces.at[at],
                (traces.count - 1 - at) * sizeof *traces.at);
    } else {
        memmove(&traces.at[at + 1], &traces.at[gone],
                (traces.count - gone) * sizeof *traces.at);
        traces.count -= gone - at - 1;
    }
    trace = &traces.at[at];
    trace->start = now.start;
    trace->end = now.end;
    trace->places = first_place;
    trace->count = places.count - first_place;
    trace->spans = now.first_span;
    trace->span_count = spans.count - now.first_span;
    trace->first = now.first;
}

/* Add the trace when its assembled stage is complete. */
static void end_stage(void)
{
    size_t first_place = places.count;

    if (now.is_optimized || now.start >= now.end)
        return;
    if (now.is_there && !now.is_lost) {
        follow_states();
        leave_out_states();
    }
    /* without the optimized stage, at least the old code at this place is gone */
    if (!now.is_there || now.is_lost || !put_places() || now.is_lost)
        places.count = first_place;
    if (!now.is_there || now.is_lost || !follow_spans() || now.is_lost)
        spans.count = now.first_span;
    add_trace(first_place);
    now.start = now.end = 0;
    now.is_there = 0;
}

/* ____________________________________________________________ */

int jit_lines_begin(void)
{
    static const struct jit_log_reader reader = {
        put_trace, begin_optimized, begin_assembled, put_code, put_operation, put_offset,
        put_line, end_stage, put_patched
    };

    jit_lines_end();
    if (ADD(states) == NULL)
        return -ENOMEM;
    is_on = 1;
    return jit_log_begin(&reader);
}

int jit_lines_are_on(void)
{
    return is_on;
}

void jit_lines_end(void)
{
    is_on = 0;
    frame_lines_forget();
    jit_log_end();
    GIVE_BACK(states);
    GIVE_BACK(places);
    GIVE_BACK(spans);
    GIVE_BACK(traces);
    GIVE_BACK(optimized);
    GIVE_BACK(assembled);
    forget_guards();
    memset(&now, 0, sizeof now);
}

/* Return the trace whose machine code contains the address, or NULL. */
static const struct trace *trace_at(uintptr_t address)
{
    const struct trace *trace;

    if (now.start <= address && address < now.end)
        end_stage();            /* the code runs, so the log of the trace is complete */
    trace = &traces.at[find(address)];
    return trace < traces.at + traces.count && trace->start <= address ? trace : NULL;
}

/* Return the state of the operation that has the return address 'offset', or 0.  The offset
   is after the call instruction, but not after the operation. */
static uint32_t state_at(const struct trace *trace, uint32_t offset)
{
    size_t low = trace->places, high = low + trace->count, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (places.at[middle].end < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < trace->places + trace->count && places.at[low].start < offset
           ? places.at[low].state : 0;
}

/* Return the state at a return address, or 0 if it is unknown. */
static uint32_t state_of(uintptr_t address)
{
    const struct trace *trace = is_on ? trace_at(address) : NULL;

    return trace == NULL ? 0 : state_at(trace, (uint32_t)(address - trace->start));
}

/* Return the state at any offset of a trace, from its spans, or 0 if it is unknown. */
static uint32_t state_of_span(const struct trace *trace, uint32_t offset)
{
    size_t low = trace->spans, high = low + trace->span_count, middle;

    while (low < high) {
        middle = low + (high - low) / 2;
        if (spans.at[middle].start < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low > trace->spans ? spans.at[low - 1].state : 0;
}

/* Return the number of functions in a state. */
static int depth_of(uint32_t state)
{
    int depth = 0;

    for (; state != 0; state = states.at[state].outer)
        depth++;
    return depth;
}

int jit_lines_functions(uintptr_t address, int64_t outermost, int begins_in,
                        int64_t *functions, int most, int *calls_own_loop)
{
    const struct trace *trace = is_on ? trace_at(address) : NULL;
    uint32_t offset, state;
    int count, i;

    if (trace == NULL)
        return -1;
    offset = (uint32_t)(address - trace->start);
    state = state_at(trace, offset);
    if (state == 0)
        state = state_of_span(trace, offset);
    count = depth_of(state);
    if (state == 0 || states.at[state].is_doubtful || count > most)
        return -1;
    /* An entry bridge begins in one function.  Its number in the log may have been the
       number of a guard before, with the states of other functions. */
    if (begins_in == 1 && depth_of(trace->first) > 1)
        return -1;
    *calls_own_loop = states.at[state].line == JIT_LINES_IN_FRAME;
    if (states.at[state].is_left)
        return states.at[state].function == NOT_KNOWN ? -1 : 0;
    for (i = count - 1; i >= 0; i--) {
        functions[i] = states.at[state].function;
        state = states.at[state].outer;
    }
    if (functions[0] != 0)
        return -1;
    functions[0] = outermost;
    return count;
}

void jit_lines_at(uintptr_t address, const int64_t *functions, int count, uint32_t *lines)
{
    uint32_t first = state_of(address), at;
    int i;

    memset(lines, 0, (size_t)count * sizeof *lines);
    if (first != 0 && states.at[first].is_left)
        return;
    /* The functions in the log must be the given ones.  jit_log.c omits functions of other
       interpreters, which are 0 in 'functions'. */
    for (i = count - 1, at = first; i >= 0 && at != 0; i--) {
        if (i > 0 && functions[i] == 0)
            continue;
        if (states.at[at].function == NOT_KNOWN)
            break;
        if (states.at[at].function != 0 && states.at[at].function != functions[i])
            return;
        at = states.at[at].outer;
    }
    if (at == 0 ? i >= 0 : states.at[at].function != NOT_KNOWN)
        return;
    for (i = count - 1, at = first; at != 0 && states.at[at].function != NOT_KNOWN; i--)
        if (i == 0 || functions[i] != 0) {
            lines[i] = states.at[at].line;
            at = states.at[at].outer;
        }
}

struct jit_return jit_lines_returning(uintptr_t address)
{
    uint32_t state = state_of(address);
    struct jit_return found = { 0, 0 };

    if (state != 0 && states.at[state].is_left) {
        found.function = states.at[state].function;
        found.line = states.at[state].line;
    }
    return found;
}

#include "unwind.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

#include "../found_object.h"
#include "segment.h"

/* DWARF's numbers of registers */
#define FP              29
#define LR              30
#define SP              31
#define STATES          8       /* maximum number of states that a table remembers at
                                   once */
#define NOT_SAVED       UNWIND_NOT_SAVED

static found_object_finder *find_object;

int unwind_is_free(void)
{
    if (find_object == NULL)
        find_object = found_object_find_finder();
    return find_object != NULL;
}

/* ____________________________________________________________ */
/* reading of tables; the bytes after the end of a table are read as 0 */

struct reader {
    const unsigned char *p, *end;
};

static uint64_t number(struct reader *r, size_t size)
{
    uint64_t value = 0;

    if ((size_t)(r->end - r->p) < size) {
        r->p = r->end;
        return 0;
    }
    memcpy(&value, r->p, size);         /* little endian */
    r->p += size;
    return value;
}

static void skip(struct reader *r, uint64_t size)
{
    r->p = (uint64_t)(r->end - r->p) < size ? r->end : r->p + size;
}

/* DWARF's LEB128: seven bits a byte, the lowest first */
static uint64_t leb(struct reader *r, int is_signed)
{
    uint64_t value = 0, byte = 0x80;
    int shift = 0;

    while (byte & 0x80 && r->p < r->end && shift < 64) {
        byte = number(r, 1);
        value |= (byte & 0x7f) << shift;
        shift += 7;
    }
    if (is_signed && shift < 64 && byte & 0x40)
        value |= ~(uint64_t)0 << shift;
    return value;
}

static int32_t half(const unsigned char *p)
{
    int32_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

/* ____________________________________________________________ */
/* the table of a function */

/* Return the sorted list of tables (.eh_frame_hdr) of the library that contains 'pc', or
   NULL. */
static const unsigned char *find_list(uintptr_t pc)
{
    struct found_object found;
    size_t size;

    if (find_object == NULL)
        return segment_find(pc, PT_GNU_EH_FRAME, &size);
    return find_object((void *)pc, &found) == 0 ? found.tables : NULL;
}

/* Return the table of the function that contains 'pc', or NULL.  The sorted list has
   pairs (a function's begin, its table), both as distances from the header. */
static const unsigned char *find_table(uintptr_t pc)
{
    /* version 1, and the encodings of the three following fields that every linker uses */
    static const unsigned char usual[4] = { 1, 0x1b, 0x03, 0x3b };
    const unsigned char *header = find_list(pc), *list;
    uint32_t low = 0, high, middle;
    int64_t wanted;

    if (header == NULL || memcmp(header, usual, sizeof usual) != 0)
        return NULL;
    high = (uint32_t)half(header + 8);
    list = header + 12;
    wanted = (int64_t)(pc - (uintptr_t)header);
    if (high == 0 || half(list) > wanted)
        return NULL;
    while (high - low > 1) {
        middle = low + (high - low) / 2;
        if (half(list + 8 * (size_t)middle) <= wanted)
            low = middle;
        else
            high = middle;
    }
    return header + half(list + 8 * (size_t)low + 4);
}

/* ____________________________________________________________ */
/* the instructions of a table */

static void set_saved(struct unwind_rule *rule, uint64_t reg, int32_t offset)
{
    if (reg == LR)
        rule->lr = offset;
    else if (reg == FP)
        rule->fp = offset;
}

static void set_as_before(struct unwind_rule *rule, uint64_t reg,
                          const struct unwind_rule *before)
{
    set_saved(rule, reg, reg == LR ? before->lr : before->fp);
}

/* The state of reading a function's table */
struct function {
    uintptr_t at;               /* address for which the rule is valid */
    uint64_t code_factor;
    int64_t data_factor;
    struct unwind_rule before;  /* rule at the beginning of each function whose table has
                                   the same common part */
};

static int32_t offset(struct reader *r, const struct function *function, int is_signed)
{
    return (int32_t)((int64_t)leb(r, is_signed) * function->data_factor);
}

/* Apply an instruction of a table to 'rule', except for the instructions that advance the
   address.  Returns 0 if the instruction is unknown or cannot be represented. */
static int carry_out(unsigned op, struct reader *r, struct unwind_rule *rule,
                     const struct function *function, struct unwind_rule *states,
                     int *count)
{
    uint64_t reg = op & 0x3f;

    if ((op & 0xc0) == 0x80) {                  /* DW_CFA_offset */
        set_saved(rule, reg, offset(r, function, 0));
        return 1;
    }
    if ((op & 0xc0) == 0xc0) {                  /* DW_CFA_restore */
        set_as_before(rule, reg, &function->before);
        return 1;
    }
    switch (op) {
    case 0x00:                                  /* nop */
        return 1;
    case 0x05:                                  /* offset_extended */
        reg = leb(r, 0);
        set_saved(rule, reg, offset(r, function, 0));
        return 1;
    case 0x06:                                  /* restore_extended */
        set_as_before(rule, leb(r, 0), &function->before);
        return 1;
    case 0x07:                                  /* undefined; x30 is undefined in the
                                                   outermost frame */
        return leb(r, 0) != LR;
    case 0x08:                                  /* same_value */
        set_saved(rule, leb(r, 0), NOT_SAVED);
        return 1;
    case 0x09:                                  /* register */
        reg = leb(r, 0);
        (void)leb(r, 0);
        return reg != LR && reg != FP;
    case 0x0a:                                  /* remember_state */
        if (*count == STATES)
            return 0;
        states[(*count)++] = *rule;
        return 1;
    case 0x0b:                                  /* restore_state */
        if (*count == 0)
            return 0;
        *rule = states[--*count];
        return 1;
    case 0x0c:                                  /* def_cfa */
        rule->cfa_register = (uint32_t)leb(r, 0);
        rule->cfa_offset = (int32_t)leb(r, 0);
        return 1;
    case 0x0d:                                  /* def_cfa_register */
        rule->cfa_register = (uint32_t)leb(r, 0);
        return 1;
    case 0x0e:                                  /* def_cfa_offset */
        rule->cfa_offset = (int32_t)leb(r, 0);
        return 1;
    case 0x10: case 0x16:                       /* expression, val_expression */
        reg = leb(r, 0);
        skip(r, leb(r, 0));
        return reg != LR && reg != FP;
    case 0x11:                                  /* offset_extended_sf */
        reg = leb(r, 0);
        set_saved(rule, reg, offset(r, function, 1));
        return 1;
    case 0x2d:                                  /* AARCH64_negate_ra_state */
        rule->is_signed ^= 1;
        return 1;
    case 0x2e:                                  /* GNU_args_size */
        (void)leb(r, 0);
        return 1;
    default:                                    /* the CFA is an expression, or the
                                                   instruction is unknown */
        return 0;
    }
}

/* Apply the instructions of a table for addresses up to 'pc' to 'rule'.  Returns 0 if an
   instruction is unknown or cannot be represented. */
static int run(struct reader r, struct unwind_rule *rule, struct function *function,
               uintptr_t pc)
{
    struct unwind_rule states[STATES];
    int count = 0;

    while (r.p < r.end) {
        unsigned op = (unsigned)number(&r, 1);
        uint64_t steps = (op & 0xc0) == 0x40 ? op & 0x3f            /* advance_loc */
                         : op == 0x02        ? number(&r, 1)        /* 1, 2, 4 */
                         : op == 0x03        ? number(&r, 2)
                         : op == 0x04        ? number(&r, 4)
                                             : 0;
        if ((op & 0xc0) == 0x40 || (op >= 0x02 && op <= 0x04)) {
            function->at += steps * function->code_factor;
            if (function->at > pc)
                return 1;
        }
        else if (!carry_out(op, &r, rule, function, states, &count))
            return 0;
    }
    return 1;
}

/* Read the common part of several tables (CIE), and store the range of its instructions.
   Returns 0 if compilers for AArch64 do not write such a part. */
static int read_kind(const unsigned char *kind, struct function *function,
                     struct reader *instructions)
{
    struct reader r = { kind + 9, kind + 4 + (uint32_t)half(kind) };
    const char *augmentation = (const char *)r.p;
    const unsigned char *behind;
    uint64_t size;
    unsigned encoding;

    r.p += strlen(augmentation) + 1;
    function->code_factor = leb(&r, 0);
    function->data_factor = (int64_t)leb(&r, 1);
    if (leb(&r, 0) != LR || augmentation[0] != 'z')
        return 0;
    size = leb(&r, 0);
    behind = r.p + size;
    for (augmentation++; *augmentation != '\0'; augmentation++)
        switch (*augmentation) {
        case 'R':                               /* encoding of a function's address */
            if (number(&r, 1) != 0x1b)
                return 0;
            break;
        case 'P':                               /* address of the exception handler */
            encoding = (unsigned)number(&r, 1) & 0x0f;
            skip(&r, encoding == 0x0b || encoding == 0x03 ? 4 : 8);
            break;
        case 'L':
            (void)number(&r, 1);
            break;
        case 'B':                               /* return addresses are signed with the
                                                   second key */
            break;
        default:                                /* for example 'S', the frame of a signal
                                                   handler */
            return 0;
        }
    instructions->p = behind;
    instructions->end = r.end;
    return behind <= r.end;
}

/* Set 'rule' to the rule for the address 'pc'.  Its 'is_known' is 0 if no table has a rule
   for this address. */
static void find_rule(struct unwind_rule *rule, uintptr_t pc)
{
    const unsigned char *table = find_table(pc);
    struct function function = { 0, 1, 1, { 0 } };
    struct reader r, common;
    uintptr_t start;

    memset(rule, 0, sizeof *rule);
    rule->pc = pc;
    rule->cfa_register = SP;
    rule->lr = rule->fp = NOT_SAVED;
    /* a size of ~0 would announce a 64-bit size, which no compiler writes */
    if (table == NULL || half(table) == -1 ||
        !read_kind(table + 4 - half(table + 4), &function, &common))
        return;
    start = (uintptr_t)(table + 8) + (uintptr_t)(intptr_t)half(table + 8);
    if (pc < start || pc - start >= (uint32_t)half(table + 12))
        return;
    function.at = start;
    if (!run(common, rule, &function, pc))
        return;
    function.before = *rule;
    function.at = start;
    r.p = table + 16;
    r.end = table + 4 + (uint32_t)half(table);
    skip(&r, leb(&r, 0));
    rule->is_known = run(r, rule, &function, pc) &&
                     (rule->cfa_register == SP || rule->cfa_register == FP);
}

/* ____________________________________________________________ */

uintptr_t unwind_without_signature(uintptr_t address)
{
    register uintptr_t x30 __asm__("x30") = address;

    __asm__("hint #7" : "+r"(x30));     /* xpaclri; no operation on older processors */
    return x30;
}

/* Read the word that a frame from 'low' to 'high' has saved at 'offset' from its end.
   Returns 0 without a read if the word is outside of the frame, because a table may be
   wrong. */
static int saved(uintptr_t low, uintptr_t high, int32_t offset, uintptr_t *value)
{
    uintptr_t place = high + (uintptr_t)(intptr_t)offset;

    if (place < low || place > high - sizeof *value || place % sizeof *value != 0)
        return 0;
    *value = *(const uintptr_t *)place;
    return 1;
}

int unwind_step(struct unwind_rules *rules, struct unwound *frame, uintptr_t limit)
{
    /* an address within the call, because the instruction after the call may belong to
       another function */
    uintptr_t pc = frame->pc - !frame->is_interrupted, cfa, lr = frame->lr, fp = frame->fp;
    struct unwind_rule *rule = &rules->at[(pc ^ pc >> 12) % UNWIND_RULES];

    if (rule->pc != pc)
        find_rule(rule, pc);
    if (!rule->is_known || (rule->lr == NOT_SAVED && !frame->is_interrupted))
        return 0;
    cfa = (rule->cfa_register == SP ? frame->sp : frame->fp) +
          (uintptr_t)(intptr_t)rule->cfa_offset;
    /* an interrupted function that has saved nothing yet, or nothing any more, may have
       no frame */
    if (cfa < frame->sp || cfa > limit || (cfa == frame->sp && !frame->is_interrupted) ||
        (rule->lr != NOT_SAVED && !saved(frame->sp, cfa, rule->lr, &lr)) ||
        (rule->fp != NOT_SAVED && !saved(frame->sp, cfa, rule->fp, &fp)))
        return 0;
    frame->pc = rule->is_signed ? unwind_without_signature(lr) : lr;
    frame->fp = fp;
    frame->sp = cfa;
    frame->is_interrupted = 0;
    return 1;
}

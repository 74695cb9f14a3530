#include "stack_table.h"

#include <string.h>

#include "digits.h"

#define SLOTS           8192            /* a power of two */
#define MAX_STACKS      (SLOTS / 4 * 3)
#define KEYS            4096            /* a power of two */
#define TEXT_SIZE       (1 << 18)
#define MAX_DEFINITION  (STACK_MAX_WORDS / 2 * (DIGITS_MAX + 1) + 2 * DIGITS_MAX)

struct entry {
    uint64_t hash;
    uint64_t counted;
    uint32_t text;                      /* where its definition begins */
};

static struct entry entries[MAX_STACKS];
static uint32_t entry_count;
static uint16_t slots[SLOTS];           /* number of the entry + 1; 0: free */
static struct {
    uint64_t key;
    uint16_t entry;                     /* likewise */
    uint16_t uses;
} known[KEYS];
static char text[TEXT_SIZE];
static uint32_t text_used;
static struct stack_words last_defined;
static uint64_t numbers_before;         /* of entries that were forgotten */

void stack_table_forget_keys(void)
{
    memset(known, 0, sizeof known);
}

void stack_table_clear(void)
{
    if (entry_count > 0) {
        memset(slots, 0, sizeof slots);
        stack_table_forget_keys();
    }
    numbers_before += entry_count;
    entry_count = 0;
    text_used = 0;
    last_defined.count = 0;
}

void stack_table_reset(void)
{
    stack_table_clear();
    numbers_before = 0;
}

int stack_table_is_full(void)
{
    return entry_count == MAX_STACKS || text_used + MAX_DEFINITION > TEXT_SIZE;
}

/* Four sums at a time: one multiplication doesn't wait for the other. */
static uint64_t hash_of(const stack_word *words, size_t count)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t h[4] = { count, 1, 2, 3 };
    size_t i, k;

    for (i = 0; i + 4 <= count; i += 4)
        for (k = 0; k < 4; k++) {
            h[k] = (h[k] ^ (uint64_t)words[i + k]) * factor;
            h[k] ^= h[k] >> 32;
        }
    for (k = 0; i < count; i++, k++)
        h[k] = (h[k] ^ (uint64_t)words[i]) * factor;
    for (k = 1; k < 4; k++) {
        h[0] = (h[0] ^ (h[0] >> 29)) * factor;
        h[0] ^= h[k] ^ (h[k] >> 31);
    }
    h[0] = (h[0] ^ (h[0] >> 29)) * factor;
    return h[0] ^ (h[0] >> 32);
}

static size_t shared_words(const stack_word *words, size_t count)
{
    const struct stack_words *last = &last_defined;
    size_t i = 0, most = count < last->count ? count : last->count;

    while (i + 2 <= most && words[count - i - 2] == last->word[last->count - i - 2]
           && words[count - i - 1] == last->word[last->count - i - 1])
        i += 2;
    return i;
}

/* The frames that are not shared, from the outermost on */
static void define(struct entry *entry, const stack_word *words, size_t count)
{
    size_t shared = shared_words(words, count), i;
    char *p = text + text_used;

    entry->text = text_used;
    p = put_digits(p, shared / 2);
    p = put_digits(p, (count - shared) / 2);
    for (i = count - shared; i > 0; i -= 2) {
        p = put_digits(p, (uint64_t)words[i - 2]);
        p = put_digits(p, (uint64_t)words[i - 1]);
    }
    text_used = (uint32_t)(p - text);
    memcpy(last_defined.word, words, count * sizeof *words);
    last_defined.count = count;
}

uint64_t stack_table_count(const stack_word *words, size_t count,
                           const char **definition, size_t *size)
{
    uint64_t hash = hash_of(words, count);
    uint32_t slot = (uint32_t)hash % SLOTS;
    struct entry *entry;

    *definition = NULL;
    *size = 0;
    for (; slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        entry = &entries[slots[slot] - 1];
        if (entry->hash == hash) {
            entry->counted++;
            return numbers_before + slots[slot];
        }
    }
    entry = &entries[entry_count];
    slots[slot] = (uint16_t)++entry_count;
    entry->hash = hash;
    entry->counted = 1;
    define(entry, words, count);
    *definition = text + entry->text;
    *size = text_used - entry->text;
    return numbers_before + entry_count;
}

void stack_table_remember(uint64_t key, uint64_t number)
{
    size_t i = (size_t)(key % KEYS);

    known[i].key = key;
    known[i].entry = (uint16_t)(number - numbers_before);
    known[i].uses = 0;
}

uint64_t stack_table_count_known(uint64_t key)
{
    size_t i = (size_t)(key % KEYS);

    if (known[i].key != key || known[i].uses == STACK_KEY_USES)
        return 0;
    known[i].uses++;
    entries[known[i].entry - 1].counted++;
    return numbers_before + known[i].entry;
}

int stack_table_next(size_t *at, struct stack_words *stack, uint64_t *counted,
                     size_t *shared)
{
    const char *p;
    uint64_t kept, added;
    size_t i;

    if (*at == entry_count)
        return 0;
    if (*at == 0)
        stack->count = 0;
    *counted = entries[*at].counted;
    p = text + entries[(*at)++].text;
    p = get_digits(p, &kept);
    p = get_digits(p, &added);
    memmove(stack->word + 2 * added, stack->word + stack->count - 2 * kept,
            2 * kept * sizeof *stack->word);
    for (i = 2 * added; i > 0; i -= 2) {
        uint64_t word;
        p = get_digits(p, &word);
        stack->word[i - 2] = (int64_t)word;
        p = get_digits(p, &word);
        stack->word[i - 1] = (int64_t)word;
    }
    stack->count = 2 * (size_t)(kept + added);
    *shared = 2 * (size_t)kept;
    return 1;
}

#include "text.h"

#include <string.h>

#include "gc_types.h"

void text_add(struct text *t, const char *s, size_t size)
{
    if (size > sizeof t->at - 1 - t->size) {
        size = sizeof t->at - 1 - t->size;
        t->is_cut = 1;
    }
    memcpy(t->at + t->size, s, size);
    t->size += size;
}

void text_add_c(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_add_characters(struct text *t, const char *s, size_t size)
{
    char *p = t->at + t->size;

    for (text_add(t, s, size); p < t->at + t->size; p++)
        if (*p == *TEXT_BETWEEN)
            *p = '?';
}

void text_add_number(struct text *t, int64_t value)
{
    char digits[24];
    size_t i = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;

    do
        digits[--i] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    if (value < 0)
        digits[--i] = '-';
    text_add(t, digits + i, sizeof digits - i);
}

uint64_t text_string(uint64_t object)
{
    if (gc_role(object) == TEXT)
        object = gc_field(object, gc_fields.to_string);
    return gc_role(object) == STRING ? object : 0;
}

const char *text_characters(uint64_t string, size_t *size)
{
    const struct gc_type *type = gc_type_of(string);

    *size = (size_t)gc_length(string, type);
    return (const char *)(string + (uint64_t)type->info->items_at);
}

int text_add_string(struct text *t, uint64_t object)
{
    uint64_t string = text_string(object);
    const char *s;
    size_t size, most = TEXT_MOST_NAME;

    if (string == 0)
        return 0;
    s = text_characters(string, &size);
    if (size <= TEXT_MOST_NAME) {
        text_add_characters(t, s, size);
        return 1;
    }
    while (most > 0 && (s[most] & 0xc0) == 0x80)
        most--;
    text_add_characters(t, s, most);
    text_add_c(t, "...");
    return 0;
}

int text_equals(uint64_t object, const char *s, size_t size)
{
    uint64_t string = text_string(object);
    const char *its;
    size_t its_size;

    if (string == 0)
        return 0;
    its = text_characters(string, &its_size);
    return its_size == size && memcmp(its, s, size) == 0;
}

int text_is_name(const char *s, size_t size)
{
    size_t i;

    if (size == 0 || size > TEXT_MOST_NAME)
        return 0;
    for (i = 0; i < size; i++)
        if (!((unsigned char)s[i] >= 0x80 || s[i] == '_' || (s[i] >= '0' && s[i] <= '9' && i) ||
              ((s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'z')))
            return 0;
    return 1;
}

int text_add_name(struct text *t, uint64_t object)
{
    uint64_t string = text_string(object);
    const char *s;
    size_t size;

    if (string == 0)
        return 0;
    s = text_characters(string, &size);
    if (!text_is_name(s, size))
        return 0;
    text_add(t, s, size);
    return 1;
}

int text_add_literal(struct text *t, uint64_t string, int are_bytes)
{
    static const char hex[] = "0123456789abcdef";
    size_t size, i;
    const char *s = text_characters(string, &size);

    if (size > TEXT_MOST_NAME)
        return 0;
    text_add_c(t, are_bytes ? "b\"" : "\"");
    for (i = 0; i < size; i++) {
        unsigned char c = (unsigned char)s[i];
        char escaped[4] = { '\\', 'x', hex[c >> 4], hex[c & 15] };
        if (c < 0x20 || c == 0x7f || (c >= 0x80 && are_bytes))
            text_add(t, escaped, 4);
        else {
            if (c == '"' || c == '\\')
                text_add_c(t, "\\");
            text_add(t, s + i, 1);
        }
    }
    text_add_c(t, "\"");
    return 1;
}

void text_add_index(struct text *t, uint64_t index)
{
    text_add_c(t, "[");
    text_add_number(t, (int64_t)index);
    text_add_c(t, "]");
}

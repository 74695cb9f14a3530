#include "name.h"

#include <string.h>

void name_clear(struct name *name)
{
    name->size = 0;
    name->is_cut = 0;
    name->key = 0xcbf29ce484222325u;
}

void name_add(struct name *name, const char *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++)
        name->key = (name->key ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    if (size > sizeof name->text - name->size) {
        size = sizeof name->text - name->size;
        name->is_cut = 1;
    }
    memcpy(name->text + name->size, bytes, size);
    name->size += size;
}

/* Return the number of bytes of the UTF-8 character that begins at 'text', or 0 if it is
   invalid. */
static size_t character(const unsigned char *text, size_t size)
{
    static const struct { unsigned char low, high; size_t size; } leads[] = {
        { 0x00, 0x7f, 1 }, { 0xc2, 0xdf, 2 }, { 0xe0, 0xef, 3 },
        { 0xf0, 0xf4, 4 },
    };
    size_t i, j;

    for (i = 0; i < sizeof leads / sizeof *leads; i++) {
        if (text[0] < leads[i].low || text[0] > leads[i].high)
            continue;
        if (size < leads[i].size)
            return 0;
        for (j = 1; j < leads[i].size; j++)
            if ((text[j] & 0xc0) != 0x80)
                return 0;
        if ((text[0] == 0xe0 && text[1] < 0xa0) ||
            (text[0] == 0xed && text[1] > 0x9f) ||
            (text[0] == 0xf0 && text[1] < 0x90) ||
            (text[0] == 0xf4 && text[1] > 0x8f))
            return 0;
        return leads[i].size;
    }
    return 0;
}

void name_finish(struct name *name)
{
    size_t at = 0, size;

    if (name->is_cut) {
        name->size = sizeof name->text - 3;
        while (name->size > 0 &&
               ((unsigned char)name->text[name->size] & 0xc0) == 0x80)
            name->size--;
        memcpy(name->text + name->size, "...", 3);
        name->size += 3;
    }
    while (at < name->size) {
        size = character((const unsigned char *)name->text + at,
                         name->size - at);
        if (size == 0)
            name->text[at] = '?';
        at += size == 0 ? 1 : size;
    }
}

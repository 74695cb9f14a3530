#include "type_names.h"

#include <stdlib.h>
#include <string.h>

#include "recorder.h"

struct line {
    const char *name;
    size_t size;
    int is_written;
};

static char *copy;
static struct line *lines;
static int64_t count;

/* "member12   GcStruct ...": without the number, that of the line */
static void find_name(struct line *line, const char *start, const char *end)
{
    while (start < end && *start != ' ')
        start++;
    while (start < end && *start == ' ')
        start++;
    line->name = start;
    line->size = (size_t)(end - start);
}

void type_names_set(const char *text, size_t size)
{
    const char *p, *end;
    int64_t number = 0;

    free(copy);
    free(lines);
    count = 0;
    copy = malloc(size + 1);
    for (p = text; p < text + size; p++)
        number += *p == '\n';
    lines = calloc((size_t)number + 1, sizeof *lines);
    if (copy == NULL || lines == NULL)
        return;
    memcpy(copy, text, size);
    for (p = copy; count < number; p = end + 1) {
        end = memchr(p, '\n', (size_t)(copy + size - p));
        find_name(&lines[count++], p, end);
    }
}

void type_names_begin(void)
{
    int64_t i;

    for (i = 0; i < count; i++)
        lines[i].is_written = 0;
}

void type_names_meet(int64_t type)
{
    struct line *line;

    if (type < 0 || type >= count)
        return;
    line = &lines[type];
    if (line->is_written)
        return;
    line->is_written = 1;
    recorder_type(type + 1, FACTS_NAME_GCS, type, line->name, line->size);
}

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

/* Numbers of classes are behind those of all types. */
#define CLASSES     ((int64_t)1 << 20)

static char *classes;           /* by their numbers: was it met? */
static int64_t room;

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
    free(classes);
    classes = NULL;
    room = 0;
}

static void write_type(int64_t number, int64_t type)
{
    if (type < count)
        recorder_type(number, FACTS_NAME_GCS, type, lines[type].name,
                      lines[type].size);
}

/* Was it met before?  Without memory, always: then it lacks the GC's name. */
static int is_class_met(int64_t its_class)
{
    char *more;
    int64_t wanted = its_class < 512 ? 1024 : 2 * its_class;

    if (its_class >= room) {
        more = realloc(classes, (size_t)wanted);
        if (more == NULL)
            return 1;
        memset(more + room, 0, (size_t)(wanted - room));
        classes = more;
        room = wanted;
    }
    if (classes[its_class])
        return 1;
    classes[its_class] = 1;
    return 0;
}

int64_t type_names_number(int64_t type, int64_t its_class)
{
    if (type < 0)
        return 0;
    if (its_class > 0) {
        if (!is_class_met(its_class))
            write_type(CLASSES + its_class, type);
        return CLASSES + its_class;
    }
    if (type < count && !lines[type].is_written) {
        lines[type].is_written = 1;
        write_type(type + 1, type);
    }
    return type + 1;
}

void type_names_class(int64_t its_class, const char *name, size_t size)
{
    recorder_type(CLASSES + its_class, FACTS_NAME_PYTHON, -1, name, size);
}

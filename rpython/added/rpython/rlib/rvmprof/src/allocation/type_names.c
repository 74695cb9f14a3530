#include "type_names.h"

#include <stdlib.h>
#include <string.h>

#include "recorder.h"

/* the name of a type of the GC */
struct line {
    const char *name;           /* in 'copy' */
    size_t size;                /* of the name, in bytes */
    int is_written;             /* whether this segment has the name */
};

static char *copy;                      /* copy of the text of type_names_set() */
static struct line *lines;              /* indexed by the GC's numbers of types */
static int64_t count;                   /* length of 'lines' */

/* In the profile, the numbers of classes begin after the numbers of types. */
#define CLASSES     ((int64_t)1 << 20)

/* a class of the interpreter */
struct its_class {
    char *name;                 /* NULL if it is not known yet */
    size_t size;                /* of the name, in bytes */
    int is_met;                 /* whether this segment has an object of the class */
};

static struct its_class *classes;       /* indexed by the interpreter's numbers */
static int64_t room;                    /* length of 'classes' */

/* Set the name of a type from a line of the GC, such as "member12   GcStruct ...". */
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

void type_names_begin_next(void)
{
    int64_t i;

    for (i = 0; i < count; i++)
        lines[i].is_written = 0;
    for (i = 0; i < room; i++)
        classes[i].is_met = 0;
}

void type_names_begin(void)
{
    int64_t i;

    for (i = 0; i < room; i++)
        free(classes[i].name);
    free(classes);
    classes = NULL;
    room = 0;
    type_names_begin_next();
}

static void write_type(int64_t number, int64_t type)
{
    if (type < count)
        recorder_type(number, TYPE_NAME_GCS, type, lines[type].name,
                      lines[type].size);
}

/* Return the entry of a class, or NULL if there is no memory. */
static struct its_class *find_class(int64_t its_class)
{
    struct its_class *more;
    int64_t wanted = its_class < 512 ? 1024 : 2 * its_class;

    if (its_class >= room) {
        more = realloc(classes, (size_t)wanted * sizeof *more);
        if (more == NULL)
            return NULL;
        memset(more + room, 0, (size_t)(wanted - room) * sizeof *more);
        classes = more;
        room = wanted;
    }
    return &classes[its_class];
}

static void write_class(int64_t number, const char *name, size_t size)
{
    recorder_type(CLASSES + number, TYPE_NAME_PYTHON, -1, name, size);
}

static void meet_class(int64_t number, int64_t type)
{
    struct its_class *its_class = find_class(number);

    /* without memory, the profile lacks the GC's name of the instances' type */
    if (its_class == NULL || its_class->is_met)
        return;
    its_class->is_met = 1;
    write_type(CLASSES + number, type);
    if (its_class->name != NULL)
        write_class(number, its_class->name, its_class->size);
}

int64_t type_names_number(int64_t type, int64_t its_class)
{
    if (type < 0)
        return 0;
    if (its_class > 0) {
        meet_class(its_class, type);
        return CLASSES + its_class;
    }
    if (type < count && !lines[type].is_written) {
        lines[type].is_written = 1;
        write_type(type + 1, type);
    }
    return type + 1;
}

void type_names_class(int64_t number, const char *name, size_t size)
{
    struct its_class *its_class = find_class(number);

    if (its_class == NULL) {
        write_class(number, name, size);
        return;
    }
    free(its_class->name);
    /* keep the name for later segments, which lack it if there is no memory */
    its_class->name = malloc(size + 1);
    its_class->size = size;
    if (its_class->name != NULL)
        memcpy(its_class->name, name, size);
    if (its_class->is_met || its_class->name == NULL)
        write_class(number, name, size);
}

#pragma once
/* The records of a profile: tables of numbers, encoded by column.
 *
 * A profile consists of rows of tables: one row for each sampled object, frame or
 * collection.  Rows wait in a record (struct record) until it is encoded.  Then each column
 * takes as few bits per row as its values need.  converter/PROFILE.rst has the layout and
 * all columns.
 *
 * The functions take no lock and allocate nothing.  Call them with the recorder's lock.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Kinds of records, with the numbers of PROFILE.rst */
enum record_kind {
    RECORD_SETTINGS = 1,
    RECORD_TOTALS,
    RECORD_FRAMES,
    RECORD_NODES,
    RECORD_TYPES,
    RECORD_LABELS,
    RECORD_OBJECTS,
    RECORD_WAITING,
    RECORD_ENDED,
    RECORD_TICKS,
    RECORD_COLLECTIONS,
    RECORD_MARKED,
    RECORD_SWEPT,
    RECORD_MARKS,
    RECORD_FIGURES,
    RECORD_NAMES,
    RECORD_HELD,
    RECORD_HOLDERS,
    RECORD_HELD_PATHS,
    RECORD_HELD_OBJECTS,
    RECORD_RAW,
    RECORD_RAW_ENDED,
    RECORD_SNAPSHOTS,
    RECORD_KINDS                /* number of kinds, including number 0, which no kind has */
};

/* The outcome of a sampled object at its first minor collection, with the numbers of
   PROFILE.rst */
enum outcome {
    OUTCOME_DIED,               /* the object was dead: short-lived */
    OUTCOME_PROMOTED,           /* the object became old */
    OUTCOME_NOT_RECORDED,       /* the engine follows no objects */
    OUTCOME_NOT_KNOWN,          /* the outcome could not be found */
    OUTCOME_YOUNG,              /* the segment ended before the collection, and a later
                                   segment may have the outcome */
    OUTCOME_YOUNG_NOT_KNOWN     /* like OUTCOME_YOUNG, and the type is unknown, too */
};

/* Return whether an object with this outcome is still in the nursery. */
static inline int outcome_is_young(enum outcome outcome)
{
    return outcome == OUTCOME_YOUNG || outcome == OUTCOME_YOUNG_NOT_KNOWN;
}

/* The end of a promoted object, with the numbers of PROFILE.rst */
enum end {
    END_FREED,                  /* the object was found dead */
    END_LOST,                   /* the sampler does not follow the object any more */
    END_NONE                    /* the object is alive, although an earlier row has its
                                   end */
};

/* Kinds of names of a type, with the numbers of PROFILE.rst */
enum type_name {
    TYPE_NAME_GCS = 1,
    TYPE_NAME_PYTHON,
    TYPE_NAME_STORAGE,
    TYPE_NAME_INTERNAL
};

/* Number of columns of the widest table */
#define RECORD_MOST_COLUMNS     13
/* Maximum size of a text in bytes.  A longer text is cut after a whole character.
   Settings may be longer. */
#define RECORD_MOST_TEXT        1024

/* A table whose rows wait to be encoded */
struct record {
    const char *units;          /* a letter for the unit of each column: see records.c */
    int64_t *rows;              /* the values, column after column */
    char *text;                 /* texts of the rows, in their order; NULL if the table
                                   has no texts */
    /* number of columns, and maximum of rows and of bytes of text */
    size_t columns, most_rows, most_text;
    size_t count, text_size;    /* rows and bytes of text that wait */
};

/* Return the record of this kind, which is empty at first. */
struct record *record_of(enum record_kind kind);

/* Return whether another row, with a text of RECORD_MOST_TEXT bytes, fits. */
int record_has_room(const struct record *);

/* Append a row, with a number for each column, to a record.  The record must have room. */
void record_add(struct record *, const int64_t *row);
/* Append a row and its text of 'size' bytes to a record.  The size of the text replaces the
   last number of the row. */
void record_add_text(struct record *, const int64_t *row, const char *text, size_t size);

/* Return the maximum size in bytes of a record when it is encoded. */
size_t record_bound(const struct record *);

/* Encode the record of this kind to 'p', and empty the record.  Returns the end of the
   encoded bytes.  Writes nothing if the record is empty. */
char *record_encode(enum record_kind kind, char *p);

/* Encode a record with the settings 'text' to 'p', in at most RECORD_SETTINGS_BOUND(size)
   bytes.  Returns the end of the encoded bytes. */
#define RECORD_SETTINGS_BOUND(size)     ((size) + 64)
char *record_encode_settings(const char *text, size_t size, char *p);

/* Empty all records. */
void record_clear_all(void);

#pragma GCC visibility pop

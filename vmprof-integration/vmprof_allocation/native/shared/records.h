#pragma once
/* The records of an allocation profile: tables of numbers, a column at a time.
 *
 * What a profile says is rows of tables: one row for each sampled object, frame,
 * collection.  Rows gather in a record (struct record) until it is encoded.  Then each
 * column takes as few bits a row as its values need, and a reader gets it back at the
 * speed of memory: converter/PROFILE.rst has the layout and all columns.
 *
 * Nothing here takes a lock or allocates.
 */

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

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
    RECORD_KINDS                /* how many, and number 0 */
};

/* What becomes of a sampled object, as its first minor collection finds out; or, at the
   end of the profile, that there was none.  The numbers are PROFILE.rst's. */
enum outcome {
    OUTCOME_DIED,
    OUTCOME_PROMOTED,
    OUTCOME_NOT_RECORDED,
    OUTCOME_NOT_KNOWN,
    OUTCOME_YOUNG,              /* it is in the nursery: a later part of the profile */
    OUTCOME_YOUNG_NOT_KNOWN     /*   says more; and it is not known what it is */
};

static inline int outcome_is_young(enum outcome outcome)
{
    return outcome == OUTCOME_YOUNG || outcome == OUTCOME_YOUNG_NOT_KNOWN;
}

/* How a promoted object ended.  The numbers are PROFILE.rst's. */
enum end {
    END_FREED,
    END_LOST,                   /* it is not known */
    END_NONE                    /* it has not, although it was recorded */
};

/* Kinds of names of a type */
enum type_name {
    TYPE_NAME_GCS = 1,
    TYPE_NAME_PYTHON,
    TYPE_NAME_STORAGE,
    TYPE_NAME_INTERNAL
};

/* Columns of the widest table */
#define RECORD_MOST_COLUMNS     13
/* Bytes of a text; what is longer is cut, between two characters.  Settings may be
   longer. */
#define RECORD_MOST_TEXT        1024

struct record {
    const char *units;          /* of each column, a letter: see records.c */
    int64_t *rows;
    char *text;                 /* NULL: it has none */
    size_t columns, most_rows, most_text;
    size_t count, text_size;    /* that wait */
};

/* The one of this kind; all are empty at first. */
struct record *record_of(enum record_kind kind);

/* Whether one row more, with a text of RECORD_MOST_TEXT bytes, fits */
int record_has_room(const struct record *);

/* Append a row: as many numbers as there are columns, of which the last one is filled
   in where there is a text, with its size in bytes. */
void record_add(struct record *, const int64_t *row);
void record_add_text(struct record *, const int64_t *row, const char *text, size_t size);

/* Bytes that encoding takes at most */
size_t record_bound(const struct record *);

/* Write the record of this kind to 'p', and empty it.  Returns the end.  There is
   nothing to write if it is empty. */
char *record_encode(enum record_kind kind, char *p);

/* A record of the settings, of this text */
#define RECORD_SETTINGS_BOUND(size)     ((size) + 64)
char *record_encode_settings(const char *text, size_t size, char *p);

/* Empty all of them. */
void record_clear_all(void);

#pragma GCC visibility pop

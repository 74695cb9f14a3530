#pragma once
/* Buffers of fixed size for paths and names, and the conversion of the heap's strings to
   Python literals.  No function allocates memory. */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* Maximum size of a name in bytes; a longer name is cut */
#define TEXT_MOST_NAME  120

/* A text of at most HELD_MOST_TEXT - 1 bytes, without a zero byte at the end */
struct text {
    char at[HELD_MOST_TEXT];
    size_t size;
    int is_cut;                 /* whether some bytes did not fit */
};

/* The separator of the path, the type and the aliases in the text of a retainer.
   text_add_characters() replaces this byte in names. */
#define TEXT_BETWEEN    "\x1f"

/* Append 'size' bytes.  If they do not fit, append the bytes that fit, and set 'is_cut'. */
void text_add(struct text *, const char *s, size_t size);
/* Append a name of the program, or a part of one.  TEXT_BETWEEN becomes "?". */
void text_add_characters(struct text *, const char *s, size_t size);
/* Append a C string. */
void text_add_c(struct text *, const char *s);
/* Append a decimal number. */
void text_add_number(struct text *, int64_t value);
/* Append "[index]". */
void text_add_index(struct text *, uint64_t index);

/* Return the RPython string that contains the characters of a Python str, 'object' itself
   if it is an RPython string, or 0 for other objects. */
uint64_t text_string(uint64_t object);
/* Return the UTF-8 bytes of an RPython string, and store their number. */
const char *text_characters(uint64_t string, size_t *size);

/* Append a str or an RPython string.  If the string is longer than TEXT_MOST_NAME, append
   its beginning, up to the end of a character, and "...", and return 0.  Also returns 0 if
   the object is no string. */
int text_add_string(struct text *, uint64_t object);

/* Return whether 'object' is a str or an RPython string with these bytes.  Any object and 0
   are allowed. */
int text_equals(uint64_t object, const char *s, size_t size);

/* Return whether a string can follow a dot in an expression.  Every non-ASCII byte is
   accepted. */
int text_is_name(const char *s, size_t size);
/* Append a string that can follow a dot.  Returns 0 if the object is no such string. */
int text_add_name(struct text *, uint64_t object);
/* Append an RPython string as a literal of a str, or of bytes if 'are_bytes'.  Returns 0 if
   the string is longer than TEXT_MOST_NAME. */
int text_add_literal(struct text *, uint64_t string, int are_bytes);

#pragma GCC visibility pop

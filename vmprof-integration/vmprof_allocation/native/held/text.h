#pragma once
/* A text that is put together of names and literals, as Python's programmers write them. */

#include <stddef.h>
#include <stdint.h>

#include "question.h"

#pragma GCC visibility push(hidden)

/* Bytes of a name; what is longer is cut, or no path */
#define TEXT_MOST_NAME  120

struct text {
    char at[HELD_MOST_TEXT];
    size_t size;
    int is_cut;
};

/* Between the texts of one row of the profile; no name has it. */
#define TEXT_BETWEEN    "\x1f"

void text_add(struct text *, const char *s, size_t size);
/* A name, or a part of one, as the program has it */
void text_add_characters(struct text *, const char *s, size_t size);
void text_add_c(struct text *, const char *s);
void text_add_number(struct text *, int64_t value);
void text_add_index(struct text *, uint64_t index);     /* in brackets */

/* The string of an object of Python's or RPython's, or 0 */
uint64_t text_string(uint64_t object);
const char *text_characters(uint64_t string, size_t *size);

/* Returns 0 if it is none, or was cut: between two characters. */
int text_add_string(struct text *, uint64_t object);

/* Whether an object, which may be anything, is this text. */
int text_equals(uint64_t object, const char *s, size_t size);

/* Whether it may stand behind a dot, in an expression. */
int text_is_name(const char *s, size_t size);
/* As a name in an expression; returns 0 if it is none. */
int text_add_name(struct text *, uint64_t object);
/* As a literal of Python's: returns 0 if it is too long for that. */
int text_add_literal(struct text *, uint64_t string, int are_bytes);

#pragma GCC visibility pop

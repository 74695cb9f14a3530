#pragma once
/* CHECK() for the harnesses, and a function that decodes their hexadecimal arguments */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
    do { if (!(condition)) failed(#condition, __FILE__, __LINE__); } while (0)

static void failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    exit(3);
}

__attribute__((unused)) static size_t from_hex(const char *hex, unsigned char *bytes, size_t room)
{
    size_t i, size = strlen(hex) / 2;

    CHECK(size <= room);
    for (i = 0; i < size; i++)
        CHECK(sscanf(hex + 2 * i, "%2hhx", bytes + i) == 1);
    return size;
}

#pragma once
#include <stddef.h>
#include <stdint.h>
#include "hook.h"
void types_prepare(const struct hook_place *place);
void types_begin(void);
int64_t types_number(uintptr_t object);
int64_t types_size(uintptr_t object);
void types_major_collection(void);

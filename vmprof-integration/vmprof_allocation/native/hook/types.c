#include "types.h"
#include <string.h>
static struct hook_place place;
void types_prepare(const struct hook_place *p) { place = *p; }
void types_begin(void) {}
void types_major_collection(void) {}
int64_t types_number(uintptr_t object) { uint32_t t; memcpy(&t, (void*)object, 4); return t / 8 + 1; }
int64_t types_size(uintptr_t object)
{
    uint64_t h; const char *info; int64_t size, item, len, bits;
    memcpy(&h, (void*)object, 8);
    if ((uint32_t)h % 8 || (uint32_t)h > 300000 || (uint32_t)h == 0) return 0;
    if ((h >> 32) & ~(uint64_t)(1 | 8 | 0xe40)) return 0;
    info = (const char *)place.type_info + (uint32_t)h;
    memcpy(&size, info + place.type_fixed_size, 8);
    memcpy(&bits, info + place.type_info_bits, 8);
    if (bits & place.type_is_varsize) {
        int64_t ofs; memcpy(&ofs, info + place.type_length, 8);
        memcpy(&item, info + place.type_item_size, 8);
        memcpy(&len, (void*)(object + ofs), 8);
        if (len < 0 || len > (1LL << 40)) return 0;
        size += item * len;
    }
    size = (size + 7) & ~7LL;
    return size < 16 ? 0 : size;
}

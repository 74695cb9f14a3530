#define _GNU_SOURCE
#include "found_object.h"

#include <dlfcn.h>

found_object_finder *found_object_find_finder(void)
{
    found_object_finder *finder;

    *(void **)&finder = dlsym(RTLD_DEFAULT, FOUND_OBJECT_FINDER);
    return finder;
}

/* held/holders.c, where it is counted how often an object is looked at for what it refers
   to. */
#include "gc_types.h"

extern long looks;
#define gc_trace(object, type, visit, context) \
    (looks++, gc_trace(object, type, visit, context))

#include "holders.c"

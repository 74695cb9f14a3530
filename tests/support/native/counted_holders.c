/* held/holders.c, except that 'looks' counts the calls that trace an object's references */
#include "gc_types.h"

extern long looks;
#define gc_trace(object, type, visit, context) \
    (looks++, gc_trace(object, type, visit, context))

#include "holders.c"

/* held/holders.c with a count of the calls that trace an object's references, in 'looks' */
#include "gc_types.h"

extern long looks;
#define gc_trace(object, type, visit, context) \
    (looks++, gc_trace(object, type, visit, context))

#include "holders.c"

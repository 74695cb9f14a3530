#pragma once
/* What a process that is attached to runs: a thread that lets Python begin and end. */
#include <stdint.h>

/* What the attaching process sends first, with two programs in Python behind it, each
   with its zero. */
struct agent_job {
    int64_t milliseconds;
    int32_t begin_size, end_size;
};

/* What it may send then, one byte each: the memory that brought the library here is
   not needed any more; and, as if the time was over, stop. */
#define AGENT_UNMAP 'u'
#define AGENT_STOP 's'
/* What the agent sends, but for what the programs in Python send: it is here,
   with the number of its end of the socket; it has the GIL; and, with a text, it can't
   go on. */
#define AGENT_HERE 'h'
#define AGENT_HAS_GIL 'g'
#define AGENT_ERROR 'e'

/* `argument` is a struct frame (frame.h). */
void *agent_run(void *argument);

#include "question.h"

#include <unistd.h>

static struct held_result *result;

void held_begin(struct held_result *where)
{
    result = where;
    result->problem = HELD_NOT_FINISHED;
}

void held_fail(enum held_problem problem)
{
    result->problem = problem;
    _exit(1);
}

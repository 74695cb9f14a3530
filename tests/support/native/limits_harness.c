/* Calls snapshot_limits_refuse().  argv[1] is a folder that replaces /, argv[2] the size of
 * the heap in bytes, and argv[3] the limit of the address space, or 0.
 *
 * Prints the reason for refusing a snapshot, and the MiB that are needed and left.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "hook.h"
#include "snapshots/snapshot_limits.h"

int main(int argc, char **argv)
{
    static const char *const names[] = { "allowed", "filtered", "address space", "memory" };
    struct snapshot_memory memory = { 0, 0 };
    struct rlimit limit;
    int refusal;

    if (argc != 4)
        return 2;
    limit.rlim_cur = limit.rlim_max = (rlim_t)strtoull(argv[3], NULL, 10);
    if (limit.rlim_cur != 0 && setrlimit(RLIMIT_AS, &limit) < 0)
        return 3;
    refusal = snapshot_limits_refuse(argv[1], strtoll(argv[2], NULL, 10), &memory);
    printf("%s %" PRId64 " %" PRId64 "\n", names[refusal], memory.needed >> 20,
           memory.left >> 20);
    return 0;
}

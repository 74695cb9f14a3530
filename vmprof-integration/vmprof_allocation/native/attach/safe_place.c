/* The system calls in the lists below are made neither by malloc nor by the dynamic
   linker.  glibc's malloc makes brk, mmap, munmap, mremap, mprotect, madvise, getrandom,
   futex (FUTEX_WAIT), and, when it counts processors, open, read, close and
   sched_getaffinity.  The dynamic linker makes open, read, pread64, fstat, mmap, mprotect,
   close, readlink, getcwd, and also futex.  A read or a futex call is examined further. */
#define _GNU_SOURCE
#include "safe_place.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH_OF_PATH 64

/* Return whether a system call waits for something.  No signal handler of PyPy or vmprof
   makes such a call. */
static bool waits(long number)
{
    switch (number) {
#ifdef SYS_select               /* x86-64 has these older calls in addition */
    case SYS_select: case SYS_poll: case SYS_epoll_wait: case SYS_pause:
#endif
    case SYS_pselect6: case SYS_ppoll: case SYS_epoll_pwait:
    case SYS_nanosleep: case SYS_clock_nanosleep:
    case SYS_wait4: case SYS_waitid:
    case SYS_accept: case SYS_accept4: case SYS_connect:
    case SYS_rt_sigtimedwait: case SYS_rt_sigsuspend: case SYS_flock:
    case SYS_recvfrom: case SYS_recvmsg:
    /* continues one of these calls, or a futex call with a time limit, after a stop */
    case SYS_restart_syscall:
        return true;
    }
    return false;
}

/* Return whether a system call is safe unless a signal handler makes it.  PyPy's handler
   reports a signal by write(), and vmprof's handler takes a sample. */
static bool is_quick(long number)
{
    switch (number) {
    case SYS_write: case SYS_pwrite64: case SYS_sendto: case SYS_sendmsg:
    case SYS_sendfile: case SYS_shutdown: case SYS_socket: case SYS_bind:
    case SYS_listen: case SYS_setsockopt: case SYS_getsockopt:
    case SYS_getsockname: case SYS_getpeername: case SYS_epoll_ctl:
    case SYS_pipe2: case SYS_dup: case SYS_dup3: case SYS_ioctl:
    case SYS_fsync: case SYS_fdatasync: case SYS_ftruncate: case SYS_chdir:
#ifdef SYS_rename
    case SYS_dup2: case SYS_rename: case SYS_unlink: case SYS_mkdir: case SYS_rmdir:
#else
    case SYS_renameat: case SYS_renameat2: case SYS_unlinkat: case SYS_mkdirat:
#endif
    case SYS_getdents64: case SYS_kill: case SYS_getppid: case SYS_getrusage:
    case SYS_times:
        return true;
    }
    return false;
}

/* Return whether a futex call does not wait for a lock of glibc.  These locks use
   FUTEX_WAIT.  Semaphores and condition variables use FUTEX_WAIT_BITSET; PyPy's locks and
   the GIL are made from these two. */
static bool is_no_lock(const struct registers *registers)
{
    return (registers->second & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

/* Return whether a descriptor is a pipe, socket or character device: the dynamic linker
   reads only files. */
static bool reads_no_file(pid_t pid, unsigned long long fd)
{
    char path[LENGTH_OF_PATH];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)fd);
    return stat(path, &status) == 0
           && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)
               || S_ISCHR(status.st_mode));
}

/* Return whether the thread may be in a signal handler.  A signal is blocked while its
   handler runs. */
static bool may_be_in_handler(pid_t pid, pid_t tid)
{
    char path[LENGTH_OF_PATH], line[256];
    uint64_t blocked = 0, caught = 0;
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return true;
    while (fgets(line, sizeof line, file) != NULL)
        found += sscanf(line, "SigBlk: %" SCNx64, &blocked) == 1
                 || sscanf(line, "SigCgt: %" SCNx64, &caught) == 1;
    fclose(file);
    return found != 2 || (blocked & caught) != 0;
}

/* The mapping that contains an address */
struct mapping {
    bool is_found, is_code, has_name;
    /* inode of the mapped file; 0 if the memory belongs to no file */
    unsigned long inode;
    char device[16];
};

static struct mapping mapping_at(pid_t pid, uint64_t address)
{
    struct mapping found = {0};
    char path[LENGTH_OF_PATH], line[512];
    bool is_begin = true;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return found;
    while (!found.is_found && fgets(line, sizeof line, file) != NULL) {
        uint64_t start, end;
        char access[5];
        int name = 0;
        if (is_begin
                && sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %15s %lu %n", &start,
                          &end, access, found.device, &found.inode, &name) == 5) {
            found.is_found = start <= address && address < end;
            found.is_code = access[2] == 'x';
            found.has_name = line[name] != '\0';
        }
        /* a path may be longer than the buffer */
        is_begin = strchr(line, '\n') != NULL;
    }
    fclose(file);
    return found;
}

bool is_safe_code(pid_t pid, pid_t tid, uint64_t pc, uint64_t library)
{
    struct mapping here = mapping_at(pid, pc), pypy = mapping_at(pid, library);
    if (!here.is_found || !here.is_code || !pypy.is_found)
        return false;
    bool is_compiled = here.inode == 0 && !here.has_name;
    bool is_library = here.inode != 0 && here.inode == pypy.inode
                      && strcmp(here.device, pypy.device) == 0;
    return (is_compiled || is_library) && !may_be_in_handler(pid, tid);
}

bool is_safe_place(pid_t pid, pid_t tid, const struct registers *registers)
{
    long number = (long)registers->number;
    if (waits(number))
        return true;
    if (number == SYS_futex)
        return is_no_lock(registers);
    if (number == SYS_read)
        return reads_no_file(pid, registers->first) && !may_be_in_handler(pid, tid);
    /* malloc_stats() writes to stderr while it holds malloc's lock */
    if (number == SYS_write && registers->first == STDERR_FILENO)
        return false;
    return is_quick(number) && !may_be_in_handler(pid, tid);
}

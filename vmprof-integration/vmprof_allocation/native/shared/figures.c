#define _GNU_SOURCE
#include "figures.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Smaller changes are not told: a part of the memory, and processor time in
   nanoseconds */
#define RESIDENT_PART       128
#define PROCESSOR_TIME      1000000000

/* The share of the time that reading what is private may take is one in so many; and
   how long it waits at least, in nanoseconds */
#define PRIVATE_SHARE       1000
#define PRIVATE_PAUSE       1000000000

struct file {
    int fd;
    dev_t device;
    ino_t inode;
};

static struct file statm = { -1, 0, 0 }, rollup = { -1, 0, 0 };
/* what was told last */
static int64_t resident, processor, private;
/* when what is private is read next */
static int64_t private_due;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static int64_t monotonic(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void open_file(struct file *file, const char *path)
{
    struct stat st;
    int low = open(path, O_RDONLY | O_CLOEXEC);

    if (low < 0)
        return;
    /* out of the way of the program's own descriptors */
    file->fd = fcntl(low, F_DUPFD_CLOEXEC, 512);
    if (file->fd < 0)
        file->fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
    close(low);
    if (file->fd >= 0 && fstat(file->fd, &st) == 0) {
        file->device = st.st_dev;
        file->inode = st.st_ino;
    }
}

void figures_open(void)
{
    resident = processor = private = 0;
    private_due = monotonic() + PRIVATE_PAUSE;
    open_file(&statm, "/proc/self/statm");
    open_file(&rollup, "/proc/self/smaps_rollup");
}

/* the program may have closed it, and opened one of its own */
static int is_ours(const struct file *file)
{
    struct stat st;

    return file->fd >= 0 && fstat(file->fd, &st) == 0 &&
           st.st_dev == file->device && st.st_ino == file->inode;
}

static void close_file(struct file *file)
{
    if (is_ours(file))
        close(file->fd);
    file->fd = -1;
}

void figures_close(void)
{
    close_file(&statm);
    close_file(&rollup);
    pthread_mutex_init(&reading, NULL);     /* a thread of the parent's had it */
}

/* Returns bytes; -1: not known. */
static int64_t read_private(void)
{
    static const char *const parts[] = {
        "\nPrivate_Clean:", "\nPrivate_Dirty:", "\nPrivate_Hugetlb:"
    };
    char text[2048];
    ssize_t length = pread(rollup.fd, text, sizeof text - 1, 0);
    int64_t sum = 0;
    size_t i;

    if (length <= 0)
        return -1;
    text[length] = 0;
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = strstr(text, parts[i]);

        if (part == NULL)
            return -1;
        sum += strtoll(part + strlen(parts[i]), NULL, 10) * 1024;
    }
    return sum;
}

/* Whether there is something new. */
static int is_private_new(void)
{
    int64_t begin = monotonic(), now, pause;

    if (begin < private_due || !is_ours(&rollup))
        return 0;
    now = read_private();
    pause = (monotonic() - begin) * PRIVATE_SHARE;
    private_due = begin + (pause > PRIVATE_PAUSE ? pause : PRIVATE_PAUSE);
    if (now < 0 || llabs(now - private) <= private / RESIDENT_PART)
        return 0;
    private = now;
    return 1;
}

static int64_t nanoseconds(struct timeval t)
{
    return t.tv_sec * (int64_t)1000000000 + t.tv_usec * (int64_t)1000;
}

static int read_all(struct figure figures[FIGURES_KINDS], int always)
{
    char text[128], *second;
    ssize_t length = is_ours(&statm) ? pread(statm.fd, text, sizeof text - 1, 0) : -1;
    int64_t now, time;
    struct rusage usage;

    if (length <= 0 || getrusage(RUSAGE_SELF, &usage) < 0)
        return 0;
    text[length] = 0;
    second = strchr(text, ' ');
    if (second == NULL)
        return 0;
    now = strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE);
    if (now <= 0)
        return 0;       /* the first thread has ended: the kernel says 0 */
    time = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
    if (!always && llabs(now - resident) <= resident / RESIDENT_PART &&
        time - processor < PROCESSOR_TIME)
        return 0;
    resident = now;
    processor = time;
    figures[0] = (struct figure){ FIGURES_RESIDENT, now };
    figures[1] = (struct figure){ FIGURES_PROCESSOR, time };
    figures[2] = (struct figure){ FIGURES_MINOR_FAULTS, usage.ru_minflt };
    figures[3] = (struct figure){ FIGURES_MAJOR_FAULTS, usage.ru_majflt };
    return 4;
}

int figures_read(struct figure figures[FIGURES_KINDS], int always)
{
    int count;

    pthread_mutex_lock(&reading);
    count = read_all(figures, always);
    if (!always && is_private_new())
        figures[count++] = (struct figure){ FIGURES_PRIVATE, private };
    pthread_mutex_unlock(&reading);
    return count;
}

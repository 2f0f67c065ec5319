/* Adds to the wall clock the nanoseconds (int64) in the file that DRILL_CLOCK names, read anew at each call.
   The monotonic clock stays as it is. libfaketime is not used: it also intercepts the timed waits of threads, and
   made healthy clusters unstable. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static const volatile int64_t *ahead = &none;
static int (*original)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
    original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("DRILL_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) ahead = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!original) original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = original(clock, out);
    if (failed || *ahead == 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t all = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + *ahead;
    out->tv_sec = all / 1000000000;
    out->tv_nsec = all % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

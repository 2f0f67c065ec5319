/* Lets fsync and fdatasync wait while the file that DRILL_SYNC_HANGS names is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int held(const char *name, int file) {
    const char *hangs = getenv("DRILL_SYNC_HANGS");
    while (hangs && access(hangs, F_OK) == 0) usleep(20000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}

int fsync(int file) { return held("fsync", file); }
int fdatasync(int file) { return held("fdatasync", file); }

/* Changes fsync and fdatasync as the file says that DRILL_SYNCS names. It is read at each call; empty: no change.

     hang PART          wait while the file says so; only files whose path, with a $ behind it, contains PART, if one is given.
                        The file NAME.held is there once one has waited
     slow               wait for 0.3 s, then sync
     fail               sync nothing, return EIO
     full               sync nothing, return ENOSPC
     lie                sync nothing, return success. Files that this process opens meanwhile have no O_SYNC and O_DSYNC
     lie-directories    the same for directories alone
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void read_mode(char *mode, size_t size) {
    const char *name = getenv("DRILL_SYNCS");
    int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = file < 0 ? 0 : read(file, mode, size - 1);
    if (file >= 0) close(file);
    mode[length < 0 ? 0 : length] = 0;
}

static int hangs(const char *mode, int file) {
    if (strncmp(mode, "hang", 4)) return 0;
    char link[64], path[PATH_MAX + 2];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) length = 0;
    strcpy(path + length, "$");
    return mode[4] == 0 || strstr(path, mode + 5) != NULL;
}

static void tell_held(void) {
    char held[PATH_MAX];
    snprintf(held, sizeof held, "%s.held", getenv("DRILL_SYNCS"));
    int file = (int)syscall(SYS_openat, AT_FDCWD, held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
}

static int is_directory(int file) {
    struct stat found;
    return fstat(file, &found) == 0 && S_ISDIR(found.st_mode);
}

static int synced(const char *name, int file) {
    char mode[128];
    read_mode(mode, sizeof mode);
    while (hangs(mode, file)) {
        tell_held();
        usleep(2000);
        read_mode(mode, sizeof mode);
    }
    if (!strcmp(mode, "fail") || !strcmp(mode, "full")) {
        errno = strcmp(mode, "full") ? EIO : ENOSPC;
        return -1;
    }
    if (!strcmp(mode, "lie") || (!strcmp(mode, "lie-directories") && is_directory(file))) return 0;
    if (!strcmp(mode, "slow")) usleep(300000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}

int fsync(int file) { return synced("fsync", file); }
int fdatasync(int file) { return synced("fdatasync", file); }

static int opened(const char *name, const char *path, int flags, mode_t rights) {
    char mode[128];
    if (flags & O_SYNC) read_mode(mode, sizeof mode);
    if ((flags & O_SYNC) && !strcmp(mode, "lie")) flags &= ~O_SYNC; /* O_DSYNC is a part of it */
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name))(path, flags, rights);
}

#define OPEN(name)                                               \
    int name(const char *path, int flags, ...) {                 \
        va_list more;                                            \
        va_start(more, flags);                                   \
        mode_t rights = va_arg(more, mode_t);                    \
        va_end(more);                                            \
        return opened(#name, path, flags, rights);               \
    }
OPEN(open)
OPEN(open64)

/* Faults of the disk, for tests: a library to preload that makes one operation on some files fail.

   cc -shared -fPIC -o disk_faults.so disk_faults.c -ldl

   disk_fault(kind, number, seed, folder) arms it: from then on, operation `number` of that kind on files in the folder
   fails. Kinds: 'r' a read fails, 'w' a write fails, 'h' half of a write is done, 'f' half of a write is done and then
   the disk is full, 's' writing to the disk (fsync) fails, 'p' the power fails before an fsync. What was written since
   the last fsync of a file may be on the disk in any order when the power fails: by the seed, some of these writes are
   undone, and the process ends. disk_operations() is the number of operations of that kind so far. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

struct write { /* not yet on the disk, the last first */
    char path[512], *before, *after; /* what the place held, zeros past the end of the file, and what it holds */
    off_t at;
    size_t size;
    struct write *next;
};

static int kind, number, count, full;
static unsigned seed;
static char folder[512];
static struct write *unsynced;

void disk_fault(int which, int when, unsigned chance, const char *where) {
    number = when, count = full = 0, seed = chance;
    snprintf(folder, sizeof folder, "%s", where);
    kind = which;
}

int disk_operations(void) { return count; }

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, 511);
    path[size < 0 ? 0 : size] = 0;
    return kind && size > 0 && !strncmp(path, folder, strlen(folder));
}

static int fails(int fd, int which) {
    char path[512];
    return kind == which && path_of(fd, path) && ++count == number;
}

static void remember(int fd, const void *bytes, size_t size, off_t at) {
    char path[512];
    if (kind != 'p' || !path_of(fd, path)) return;
    struct write *made = calloc(1, sizeof *made);
    int file = REAL(open64)(path, O_RDONLY);
    strcpy(made->path, path);
    made->before = calloc(1, size + 1), made->after = memcpy(malloc(size + 1), bytes, size);
    made->at = at, made->size = size, made->next = unsynced, unsynced = made;
    (void)!REAL(pread64)(file, made->before, size, at);
    close(file);
}

static void put(struct write *each, const char *bytes) {
    int file = REAL(open64)(each->path, O_WRONLY);
    if (file < 0) return; /* it was removed or renamed */
    (void)!REAL(pwrite64)(file, bytes, each->size, each->at);
    close(file);
}

static void repeat_some(struct write *each) {
    if (!each) return;
    repeat_some(each->next);
    if (rand() % 2) put(each, each->after);
}

static void lose_power(void) {
    for (struct write *each = unsynced; each; each = each->next) put(each, each->before);
    srand(seed);
    repeat_some(unsynced);
    _exit(99);
}

static ssize_t written(int fd, const void *bytes, size_t size, off_t at) {
    char path[512];
    int here = path_of(fd, path);
    if (full && here) { errno = ENOSPC; return -1; }
    if (fails(fd, 'w')) { errno = EIO; return -1; }
    int half = size > 1 && (fails(fd, 'h') || (fails(fd, 'f') && (full = 1)));
    if (half) size /= 2;
    remember(fd, bytes, size, at < 0 ? lseek(fd, 0, SEEK_CUR) : at);
    return at < 0 ? REAL(write)(fd, bytes, size) : REAL(pwrite64)(fd, bytes, size, at);
}

ssize_t write(int fd, const void *bytes, size_t size) { return written(fd, bytes, size, -1); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) { return written(fd, bytes, size, at); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return written(fd, bytes, size, at); }

ssize_t read(int fd, void *bytes, size_t size) {
    if (fails(fd, 'r')) { errno = EIO; return -1; }
    return REAL(read)(fd, bytes, size);
}
ssize_t pread64(int fd, void *bytes, size_t size, off64_t at) {
    if (fails(fd, 'r')) { errno = EIO; return -1; }
    return REAL(pread64)(fd, bytes, size, at);
}
ssize_t pread(int fd, void *bytes, size_t size, off_t at) { return pread64(fd, bytes, size, at); }

static int synced(int fd, int (*real)(int)) {
    char path[512];
    if (fails(fd, 's')) { errno = EIO; return -1; }
    if (fails(fd, 'p')) lose_power();
    struct write **each = &unsynced;
    while (path_of(fd, path) && *each) {
        if (!strcmp((*each)->path, path)) *each = (*each)->next;
        else each = &(*each)->next;
    }
    return real(fd);
}

int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

/* The process that a candidate's host half runs in: it shuts itself off, loads the shared object and
 * answers requests. The stand-in runtime (runtime/) is linked in; there is no GPU here, no memory of
 * one, and nothing that belongs to the judge.
 *
 *     process LIBRARY SOCKET RULESET
 *
 * RULESET is the descriptor of a Landlock ruleset, or -1. Requests on the socket are a number, the
 * length of a body and the body; answers a length and a body (process.py). The first request brings
 * the filter of system calls; its answer holds errno of each step of the enclosure, 0 where it was
 * taken. After that nothing is loaded, opened or started but the candidate.
 */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXIT_TOUCHED_DEVICE 77
#define MOST_POINTERS 1024
#define STACK_BYTES (1 << 20)
#define SCRUBBED_BYTES (STACK_BYTES - (64 << 10))
#define LARGEST_REQUEST ((uint64_t)64 << 20)
#define LARGEST_PROCESS ((uint64_t)8 << 30)
#define MOST_SECONDS 30

enum request_kind { ENCLOSE = 1, OPEN, LOAD, DESCRIBE, WORKSPACE, VARIABLES, CALL, STATE };

static int channel;
static uint64_t device_low, device_high;
static void *candidate;
static uint8_t *answer;
static uint64_t answered, room, most_answered;

static void receive(void *data, uint64_t bytes) {
    for (uint8_t *at = data; bytes;) {
        ssize_t got = read(channel, at, bytes);
        if (got <= 0) _exit(0); /* nobody asks any more */
        at += got;
        bytes -= (uint64_t)got;
    }
}

static void send_all(const void *data, uint64_t bytes) {
    for (const uint8_t *at = data; bytes;) {
        ssize_t sent = write(channel, at, bytes);
        if (sent <= 0) _exit(0);
        at += sent;
        bytes -= (uint64_t)sent;
    }
}

static void add(const void *data, uint64_t bytes) {
    if (answered + bytes > room) {
        room = 2 * (answered + bytes);
        answer = realloc(answer, room);
        if (!answer) abort();
    }
    if (bytes) memcpy(answer + answered, data, bytes);
    answered += bytes;
}

static void add_number(uint64_t value) { add(&value, sizeof value); }

/* Beyond the limit an empty record says that there were more. */
static void add_record(const uint8_t *record, uint64_t bytes) {
    static int cut;
    if (!answered) cut = 0;
    if (cut) return;
    cut = answered + bytes > most_answered;
    add_number(cut ? 0 : bytes);
    if (!cut) add(record, bytes);
}

static void on_segmentation_fault(int number, siginfo_t *info, void *context) {
    uint64_t address = (uint64_t)info->si_addr;
    (void)context;
    if (address >= device_low && address < device_high) _exit(EXIT_TOUCHED_DEVICE);
    signal(number, SIG_DFL);
}

/* ---- enclosure --------------------------------------------------------------------------------- */

static int drop_capabilities(void) {
    struct { uint32_t version; int pid; } header = {0x20080522, 0};
    uint32_t nothing[6] = {0};
    return syscall(SYS_capset, &header, nothing) ? errno : 0;
}

static int restrict_files(int ruleset) {
    if (ruleset < 0) return ENOSYS;
    int error = syscall(SYS_landlock_restrict_self, ruleset, 0) ? errno : 0;
    close(ruleset);
    return error;
}

static int filter_calls(const uint8_t *body, uint64_t bytes) {
    struct sock_fprog program = {(unsigned short)(bytes / sizeof(struct sock_filter)),
                                 (struct sock_filter *)body};
    if (!program.len) return ENOSYS;
    if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
        return 0;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) ? errno : 0;
}

static void set_limit(int kind, uint64_t most) {
    struct rlimit limit = {most, most};
    setrlimit(kind, &limit);
}

static void enclose(int ruleset, const uint8_t *filter, uint64_t bytes) {
    set_limit(RLIMIT_STACK, STACK_BYTES);
    set_limit(RLIMIT_AS, LARGEST_PROCESS);
    set_limit(RLIMIT_CPU, MOST_SECONDS);
    set_limit(RLIMIT_NOFILE, 16);
    set_limit(RLIMIT_FSIZE, 0);
    set_limit(RLIMIT_CORE, 0);
    add_number(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? (uint64_t)errno : 0);
    add_number((uint64_t)drop_capabilities());
    add_number((uint64_t)restrict_files(ruleset));
    add_number((uint64_t)filter_calls(filter, bytes));
}

/* ---- the candidate ------------------------------------------------------------------------------ */

static void load(const char *library) {
    candidate = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *error = candidate ? "" : dlerror();
    kb_seal_kernels();
    add(error, strlen(error));
}

/* Registers, shared bytes, threads, parameters with their sizes, the name to its end; all again. */
static void describe(const uint8_t *body, uint64_t bytes) {
    for (const uint8_t *at = body, *end = body + bytes; at < end;) {
        const int32_t *numbers = (const int32_t *)at;
        const uint32_t *sizes = (const uint32_t *)(at + 16);
        const char *name = (const char *)(sizes + numbers[3]);
        kb_describe_kernel(name, numbers[0], numbers[1], numbers[2], (uint32_t)numbers[3], sizes);
        uint64_t length = (uint64_t)(name - (const char *)at) + strlen(name) + 1;
        at += (length + 7) / 8 * 8;
    }
}

static uint64_t workspace_bytes(void) {
    size_t (*function)(void) = (size_t (*)(void))dlsym(candidate, "workspace_bytes");
    return function ? function() : 0;
}

static void list_variables(void) {
    const char *name;
    uint64_t bytes;
    for (int i = 0; kb_variable(i, &name, &bytes); i++) {
        add_number(bytes);
        add_number(strlen(name));
        add(name, strlen(name));
    }
}

/* Between two calls of launch(): compilers leave the gaps of a kernel's arguments as they find them,
 * and a candidate could leave itself notes there. The stack has room for little more. */
static __attribute__((noinline)) void scrub_stack(void) {
    uint8_t below[SCRUBBED_BYTES];
    memset(below, 0, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory");
}

#define FOUR(a, i) a[i], a[i + 1], a[i + 2], a[i + 3]
#define SIXTEEN(a, i) FOUR(a, i), FOUR(a, i + 4), FOUR(a, i + 8), FOUR(a, i + 12)
#define MANY(a, i) SIXTEEN(a, i), SIXTEEN(a, i + 16), SIXTEEN(a, i + 32), SIXTEEN(a, i + 48)
#define MORE(a, i) MANY(a, i), MANY(a, i + 64), MANY(a, i + 128), MANY(a, i + 192)

/* In the calling conventions of x86-64 and arm64 arguments that a function does not expect do no
 * harm, so one call serves every number of pointers. */
static void call(const uint64_t *pointers, uint64_t count) {
    void (*function)() = (void (*)())dlsym(candidate, "launch");
    uint64_t a[MOST_POINTERS] = {0};
    memcpy(a, pointers, sizeof *a * (count < MOST_POINTERS ? count : MOST_POINTERS));
    if (!function) return;
    fesetenv(FE_DFL_ENV);
    if (count <= 16) function(SIXTEEN(a, 0));
    else if (count <= 256) function(MORE(a, 0));
    else function(MORE(a, 0), MORE(a, 256), MORE(a, 512), MORE(a, 768));
}

/* FNV-1a over eight bytes at a time. */
static uint64_t mixed(uint64_t hash, const void *data, uint64_t bytes) {
    const uint8_t *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x100000001B3u;
    }
    for (; bytes; bytes--) hash = (hash ^ *at++) * 0x100000001B3u;
    return hash;
}

static int add_state(struct dl_phdr_info *object, size_t size, void *hash) {
    struct link_map *map;
    (void)size;
    if (dlinfo(candidate, RTLD_DI_LINKMAP, &map) || map->l_addr != object->dlpi_addr) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const void *at = (const void *)(object->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_TLS) at = object->dlpi_tls_data;
        else if (part->p_type != PT_LOAD || !(part->p_flags & PF_W)) continue;
        if (at) *(uint64_t *)hash = mixed(*(uint64_t *)hash, at, part->p_memsz);
    }
    return 1;
}

/* What the candidate may remember a call by: all its writable memory. */
static void add_hash_of_state(void) {
    uint64_t hash = 0xCBF29CE484222325u;
    dl_iterate_phdr(add_state, &hash);
    add_number(hash);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    channel = atoi(arguments[2]);
    struct sigaction action = {.sa_sigaction = on_segmentation_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    for (;;) {
        uint64_t head[2];
        receive(head, sizeof head);
        if (head[1] > LARGEST_REQUEST) return 2;
        uint8_t *body = calloc(1, head[1] + 8);
        if (!body) return 2;
        receive(body, head[1]);
        answered = 0;
        switch (head[0]) {
        case ENCLOSE: enclose(atoi(arguments[3]), body, head[1]); break;
        case OPEN: {
            const kb_gpu *gpu = (const kb_gpu *)body;
            device_low = gpu->device_low, device_high = gpu->device_high;
            most_answered = ((const uint64_t *)(gpu + 1))[0];
            kb_open(gpu, add_record);
            break;
        }
        case LOAD: load(arguments[1]), scrub_stack(); break;
        case DESCRIBE: describe(body, head[1]); break;
        case WORKSPACE: add_number(workspace_bytes()); break;
        case VARIABLES: list_variables(); break;
        case CALL:
            kb_place_variables(((const uint64_t *)body)[0]);
            call((const uint64_t *)body + 1, head[1] / 8 - 1);
            break;
        case STATE: add_hash_of_state(), scrub_stack(); break;
        default: return 2;
        }
        free(body);
        send_all(&answered, sizeof answered);
        send_all(answer, answered);
    }
}

#define _GNU_SOURCE
#include "fibers.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Swift's collections need some KiB. Only touched pages occupy memory. */
enum { STACK = 256 << 10, GUARD = 64 << 10 };

struct fiber {
    ucontext_t own, resumer;
    void *stack;
    void (*run)(void *);
    void *context;
};

static _Thread_local struct fiber *running;

/* makecontext(3) passes only int arguments. */
static void begin(unsigned low, unsigned high)
{
    struct fiber *fiber = (struct fiber *)((uintptr_t)high << 32 | low);
    fiber->run(fiber->context);
    abort();
}

struct fiber *fiber_create(void (*run)(void *), void *context)
{
    struct fiber *fiber = calloc(1, sizeof *fiber);
    if (fiber == NULL) return NULL;
    fiber->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (fiber->stack == MAP_FAILED) {
        free(fiber);
        return NULL;
    }
    /* Overflowing the stack ends the process. */
    mprotect(fiber->stack, GUARD, PROT_NONE);
    fiber->run = run;
    fiber->context = context;
    getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp = fiber->stack;
    fiber->own.uc_stack.ss_size = STACK;
    uintptr_t address = (uintptr_t)fiber;
    makecontext(&fiber->own, (void (*)(void))begin, 2, (unsigned)address, (unsigned)(address >> 32));
    return fiber;
}

void fiber_resume(struct fiber *fiber)
{
    running = fiber;
    swapcontext(&fiber->resumer, &fiber->own);
    running = NULL;
}

void fiber_yield(void)
{
    struct fiber *fiber = running;
    swapcontext(&fiber->own, &fiber->resumer);
}

void fiber_destroy(struct fiber *fiber)
{
    munmap(fiber->stack, STACK);
    free(fiber);
}

bool fibers_are_supported(void)
{
#ifdef SANITIZED
    return false;
#else
    return true;
#endif
}

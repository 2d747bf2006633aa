/* Fibers: functions with stacks of their own, which one thread runs in turn. */
#ifndef THUMBCACHED_FIBERS_H
#define THUMBCACHED_FIBERS_H

#include <stdbool.h>

struct fiber;

/* Creates a fiber that calls `run(context)` at the first resume. `run` must not return. NULL without memory. */
struct fiber *fiber_create(void (*run)(void *), void *context);

/* Runs the fiber until it yields. Not from within a fiber. */
void fiber_resume(struct fiber *fiber);

/* Returns from fiber_resume(). Only from within a fiber. */
void fiber_yield(void);

/* Frees the fiber, which must have yielded. Nothing on its stack is released. */
void fiber_destroy(struct fiber *fiber);

/* False under sanitizers, which do not follow changes of the stack. */
bool fibers_are_supported(void);

#endif

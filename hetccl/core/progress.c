#include "hetccl.h"
#include "run.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whose turn it is. A collective that is asked for while none of its group runs, runs in the thread that waits for it.
 * Everything else stands in its group's queue, and the progress thread serves the queues of all groups side by side. */

struct het_ticket {
    struct het_ticket *next;
    const struct het_call *call;
    void *input, *output;
    int64_t timeout;
    uint64_t tag;
    int watched;
    _Atomic uint32_t done; /* a futex */
    struct het_error error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static struct het_group *_Atomic arrivals; /* groups that the progress thread does not know of yet */
static _Atomic int asleep, stopping;       /* the thread sleeps, so that only `wake` reaches it; it is to end */
static int wake = -1;
static pthread_t thread;
static uint64_t *tags; /* tickets to be told of, by het_finished */
static int32_t n_tags, room, outstanding;

static _Thread_local struct het_error latest;

const struct het_error *het_error(void) { return &latest; }

static struct het_run run_of(const struct het_ticket *ticket, struct het_error *error) {
    const struct het_call *call = ticket->call;
    return (struct het_run){
        .group = call->group, .plan = call->plan, .bases = {ticket->input, ticket->output, NULL}, .sequence = error->own,
        .what = call->what, .count = call->count, .scratch_bytes = call->scratch_bytes, .timeout = ticket->timeout,
        .error = error, .slot_bytes = 1 << 20,
    };
}

static void clear(struct het_error *error, uint64_t sequence) {
    memset(error, 0, offsetof(struct het_error, waiting));
    error->own = sequence;
}

static void finish(struct het_ticket *ticket) {
    pthread_mutex_lock(&lock);
    if (ticket->tag && (ticket->watched || ticket->error.status)) {
        tags[n_tags++] = ticket->tag;
        pthread_cond_broadcast(&told);
    }
    atomic_store_explicit(&ticket->done, 1, memory_order_release);
    pthread_mutex_unlock(&lock);
    (void)syscall(SYS_futex, &ticket->done, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* ---- the progress thread ---- */

/* Begin the first of a group's queue that can be begun. Returns 0 where the queue ended: the group is nobody's then. */
static int begin_next(struct het_group *group, struct het_run *run, struct het_ticket **ticket) {
    for (;;) {
        pthread_mutex_lock(&group->lock);
        *ticket = group->first;
        group->running = *ticket != NULL;
        if (!*ticket) pthread_cond_broadcast(&group->changed);
        else if (!(group->first = (*ticket)->next)) group->last = &group->first;
        int failed = group->failed;
        pthread_mutex_unlock(&group->lock);
        if (!*ticket) return 0;
        *run = run_of(*ticket, &(*ticket)->error);
        if (!(failed ? het_run_fail(run, HET_ABORTED, -1) : het_run_begin(run))) return 1;
        finish(*ticket);
    }
}

struct served {
    struct het_group *group;
    struct het_ticket *ticket;
    struct het_run run;
};

struct table {
    struct served *rows;
    struct het_run **runs; /* of the rows */
    int32_t n, room;
};

static int make_room(struct table *table) {
    if (table->n < table->room) return 1;
    int32_t room = 2 * table->room + 16;
    struct served *rows = realloc(table->rows, (size_t)room * sizeof *rows);
    if (rows) table->rows = rows;
    struct het_run **runs = realloc(table->runs, (size_t)room * sizeof *runs);
    if (runs) table->runs = runs;
    if (!rows || !runs) return 0;
    table->room = room;
    return 1;
}

/* Without memory they wait until a row is free. */
static void take_arrivals(struct table *table) {
    while (atomic_load_explicit(&arrivals, memory_order_relaxed) && make_room(table)) {
        pthread_mutex_lock(&lock);
        struct het_group *group = atomic_load_explicit(&arrivals, memory_order_relaxed);
        atomic_store_explicit(&arrivals, group->next_active, memory_order_relaxed);
        pthread_mutex_unlock(&lock);
        struct served *row = &table->rows[table->n];
        row->group = group;
        table->n += begin_next(group, &row->run, &row->ticket);
    }
}

/* Each group its turn; whether anything moved. */
static int serve_all(struct table *table) {
    int moved = 0;
    for (int32_t i = 0; i < table->n;) {
        struct served *row = &table->rows[i];
        int32_t turn = het_run_turn(&row->run);
        moved |= turn != HET_STUCK;
        if (turn >= 0 && turn != HET_FINISHED) {
            i++;
            continue;
        }
        if (turn < 0) {
            pthread_mutex_lock(&row->group->lock);
            row->group->failed = 1;
            pthread_mutex_unlock(&row->group->lock);
        }
        finish(row->ticket);
        if (!begin_next(row->group, &row->run, &row->ticket)) *row = table->rows[--table->n];
    }
    return moved;
}

static void sleep_until_woken(const struct table *table, int idle) {
    atomic_store(&asleep, 1);
    if (!atomic_load(&arrivals) && !atomic_load(&stopping)) het_rest(table->runs, table->n, idle, wake);
    atomic_store(&asleep, 0);
    uint64_t times;
    (void)!read(wake, &times, sizeof times);
}

/* Ask for short slices of the processor, and for timers that are not late: then a busy thread of the program makes way at once,
 * and loses nothing, since what is asked for is no larger share. Without effect before Linux 6.12. */
static void be_prompt(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice, deadline, period;
    } attributes = {.size = sizeof attributes, .nice = getpriority(PRIO_PROCESS, 0), .slice = 100000};
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1000);
}

static void *serve(void *nothing) {
    be_prompt();
    static struct table table;
    int idle = 0;
    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        take_arrivals(&table);
        idle = serve_all(&table) ? 0 : idle + 1;
        for (int32_t i = 0; i < table.n; i++) table.runs[i] = &table.rows[i].run;
        if (!table.n || idle >= HET_YIELD) sleep_until_woken(&table, idle);
    }
    return nothing;
}

/* The progress thread serves this group, whose lock the caller holds, from now on. */
static void hand_over(struct het_group *group) {
    group->running = 1;
    pthread_mutex_lock(&lock);
    group->next_active = atomic_load_explicit(&arrivals, memory_order_relaxed);
    atomic_store(&arrivals, group);
    pthread_mutex_unlock(&lock);
    uint64_t once = 1;
    if (atomic_load(&asleep)) (void)!write(wake, &once, sizeof once);
}

/* 0 once there is a progress thread. */
static int need_thread(void) {
    pthread_mutex_lock(&lock);
    if (wake < 0 && (wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0 && pthread_create(&thread, NULL, serve, NULL)) {
        close(wake);
        wake = -1;
    }
    int there = wake >= 0;
    pthread_mutex_unlock(&lock);
    return there ? 0 : -1;
}

void het_stop(void) {
    pthread_mutex_lock(&lock);
    int there = wake >= 0 && !atomic_exchange(&stopping, 1);
    pthread_cond_broadcast(&told);
    pthread_mutex_unlock(&lock);
    uint64_t once = 1;
    if (there && write(wake, &once, sizeof once) == sizeof once) pthread_join(thread, NULL);
}

/* ---- asking for a collective ---- */

/* Stand behind those that were asked for before; the caller holds the group's lock. */
static void queue(struct het_group *group, struct het_ticket *ticket) {
    *group->last = ticket;
    group->last = &ticket->next;
    if (!group->running) hand_over(group);
}

int32_t het_run(const struct het_call *call, void *input, void *output, int64_t timeout) {
    struct het_group *group = call->group;
    struct het_ticket ticket = {.call = call, .input = input, .output = output, .timeout = timeout};
    pthread_mutex_lock(&group->lock);
    uint64_t sequence = ++group->sequence;
    int here = !group->running, refused = group->closed || group->failed;
    if (refused) here = 1;
    else if (here) group->running = 1;
    else if (need_thread()) {
        pthread_mutex_unlock(&group->lock);
        clear(&latest, sequence);
        return latest.status = HET_MEMORY;
    } else {
        clear(&ticket.error, sequence);
        queue(group, &ticket);
    }
    pthread_mutex_unlock(&group->lock);
    if (!here) {
        while (!het_wait(&ticket, INT64_MAX)) {
        }
        if (ticket.error.status) latest = ticket.error;
        return ticket.error.status;
    }
    clear(&latest, sequence);
    struct het_run run = run_of(&ticket, &latest);
    if (refused) return -het_run_fail(&run, HET_ABORTED, -1);
    struct het_run *runs[1] = {&run};
    int32_t turn = het_run_begin(&run);
    while (turn >= 0 && turn != HET_FINISHED)
        if ((turn = het_run_turn(&run)) == HET_STUCK) het_rest(runs, 1, run.stuck, -1);
    pthread_mutex_lock(&group->lock);
    group->running = 0;
    group->failed |= turn < 0;
    if (group->first) hand_over(group);
    else if (group->closed) pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    return turn < 0 ? -turn : HET_OK;
}

static struct het_ticket *new_ticket(void) {
    struct het_ticket *ticket = calloc(1, sizeof *ticket);
    pthread_mutex_lock(&lock);
    int32_t needed = outstanding + n_tags + 1; /* so that telling of one never fails */
    if (ticket && needed > room) {
        uint64_t *more = realloc(tags, (size_t)(2 * needed) * sizeof *tags);
        if (more) tags = more, room = 2 * needed;
    }
    int fits = ticket && needed <= room;
    outstanding += fits;
    pthread_mutex_unlock(&lock);
    if (fits) return ticket;
    free(ticket);
    return NULL;
}

struct het_ticket *het_start(const struct het_call *call, void *input, void *output, int64_t timeout, uint64_t tag) {
    struct het_group *group = call->group;
    struct het_ticket *ticket = need_thread() ? NULL : new_ticket();
    if (!ticket) return NULL;
    ticket->call = call;
    ticket->input = input;
    ticket->output = output;
    ticket->timeout = timeout;
    ticket->tag = tag;
    pthread_mutex_lock(&group->lock);
    clear(&ticket->error, ++group->sequence);
    int refused = group->closed || group->failed;
    if (!refused) queue(group, ticket);
    pthread_mutex_unlock(&group->lock);
    if (refused) {
        ticket->error.status = HET_ABORTED;
        ticket->error.rank = -1;
        finish(ticket);
    }
    return ticket;
}

int32_t het_wait(struct het_ticket *ticket, int64_t timeout) {
    int64_t deadline = 0;
    for (;;) {
        if (atomic_load_explicit(&ticket->done, memory_order_acquire)) break;
        if (timeout <= 0) return 0;
        int64_t time = het_now();
        if (!deadline) deadline = timeout > INT64_MAX - time ? INT64_MAX : time + timeout;
        if (time >= deadline) return 0;
        struct timespec left = {(deadline - time) / 1000000000, (deadline - time) % 1000000000};
        (void)syscall(SYS_futex, &ticket->done, FUTEX_WAIT_PRIVATE, 0, &left, NULL, 0);
    }
    return 1;
}

const struct het_error *het_ticket_error(const struct het_ticket *ticket) { return &ticket->error; }

void het_ticket_free(struct het_ticket *ticket) {
    pthread_mutex_lock(&lock);
    outstanding--;
    pthread_mutex_unlock(&lock);
    free(ticket);
}

int32_t het_watch(struct het_ticket *ticket) {
    pthread_mutex_lock(&lock);
    int done = atomic_load_explicit(&ticket->done, memory_order_acquire) != 0;
    ticket->watched = 1;
    pthread_mutex_unlock(&lock);
    return done;
}

int32_t het_finished(uint64_t *found, int32_t most) {
    pthread_mutex_lock(&lock);
    while (!n_tags && !atomic_load(&stopping)) pthread_cond_wait(&told, &lock);
    int32_t n = n_tags < most ? n_tags : most;
    memcpy(found, tags, (size_t)n * sizeof *tags);
    memmove(tags, tags + n, (size_t)(n_tags - n) * sizeof *tags);
    n_tags -= n;
    pthread_mutex_unlock(&lock);
    return n ? n : -1;
}

uint64_t het_group_sequence(struct het_group *group) {
    pthread_mutex_lock(&group->lock);
    uint64_t sequence = group->sequence;
    pthread_mutex_unlock(&group->lock);
    return sequence;
}

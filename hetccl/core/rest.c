#include "run.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

enum { MOST_SOCKETS = 64 };
static const int64_t OTHERS_TURN = 200000; /* nanoseconds that nobody but another thread on this core takes */

/* For how many more times the progress thread takes its core for one that it shares. */
static _Thread_local int shared;

static nfds_t sockets(const struct het_run *run, struct pollfd *fds, nfds_t n) {
    for (int32_t r = 0; r < run->group->size; r++) {
        const struct het_link *link = run->group->peers[r].link;
        for (int i = 0; link && !atomic_load(&link->dead) && i < link->stripes && n < MOST_SOCKETS; i++) {
            short want = link->stripe[i].sending <= link->tx_last ? POLLIN | POLLOUT : POLLIN;
            fds[n++] = (struct pollfd){.fd = link->stripe[i].fd, .events = want};
        }
    }
    return n;
}

void het_rest(struct het_run *const *runs, int32_t n, int idle, int wake) {
    if (n && idle < HET_YIELD) return;
    if (n && idle < HET_SLEEP && !shared) {
        int64_t before = het_now();
        sched_yield();
        /* Who yields to a busy thread, as its own program's, is back after that one's slice; who sleeps is woken in time. A
         * thread of the program rather yields: to the rank that it waits for, where ranks share cores. */
        if (wake >= 0 && het_now() - before > OTHERS_TURN) shared = HET_SLEEP;
        return;
    }
    shared -= shared > 0;
    struct pollfd fds[MOST_SOCKETS + 1];
    nfds_t n_fds = 0;
    for (int32_t i = 0; i < n; i++) n_fds = sockets(runs[i], fds, n_fds);
    if (wake >= 0) fds[n_fds++] = (struct pollfd){.fd = wake, .events = POLLIN};
    struct timespec pause = {0, idle < 2 * HET_SLEEP ? 20000 : 500000};
    (void)ppoll(fds, n_fds, n ? &pause : NULL, NULL);
}

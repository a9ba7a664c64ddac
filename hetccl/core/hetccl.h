/* The C core's interface, in whole: what Python calls through ctypes. Every call may be made without the GIL. */
#ifndef HETCCL_H
#define HETCCL_H

#include <stddef.h>
#include <stdint.h>

/* Versions of this interface and of the flat plan; the caller compares them before anything else. */
enum { HET_INTERFACE = 3, HET_PLAN_VERSION = 1 };
int het_interface(void);

enum het_status {
    HET_OK = 0,
    HET_TIMEOUT = 1,  /* the deadline passed; `waiting` has the ranks */
    HET_DEAD = 2,     /* the link to `rank` broke, with `code` as errno */
    HET_ABORTED = 3,  /* het_abort was called for this group */
    HET_MISMATCH = 4, /* `rank` runs another collective: its `sequence`, `what`, `count` */
    HET_MEMORY = 6,
    HET_INVALID = 7   /* the plan does not fit the group */
};

struct het_error {
    int32_t status, rank, code, waiting_count;
    uint64_t own; /* the sequence number of what failed; the next three are those of the message that did not fit */
    uint64_t sequence, what, count;
    int32_t waiting[64]; /* the first of the ranks that were waited for */
};

/* ---- links: one a peer process ---- */

struct het_link;
size_t het_ring_size(uint32_t slots, uint32_t slot_bytes);
/* Over two rings in shared memory, each of het_ring_size zeroed bytes aligned to 64; the peer has them the other way round. */
struct het_link *het_link_open_shm(void *tx, void *rx, uint32_t slots, uint32_t slot_bytes);
/* Over connected stream sockets, the same order on both sides; the link does not close them. */
struct het_link *het_link_open_tcp(const int32_t *fds, int32_t count, uint32_t slots, uint32_t slot_bytes);
void het_link_close(struct het_link *link);
/* From now on every wait for this peer ends with HET_DEAD. */
void het_link_kill(struct het_link *link, int32_t code);

/* ---- groups: tags on links ---- */

struct het_group;
/* The id is the same on all ranks, below 2^48. */
struct het_group *het_group_open(uint64_t id, int32_t rank, int32_t size);
/* `link` leads to rank `peer`: before the first plan that has to do with it. */
void het_group_connect(struct het_group *group, int32_t peer, struct het_link *link);
/* Ends what runs and what is to run, waits for it, and takes nothing any more. Messages of it that still arrive are dropped. */
void het_group_close(struct het_group *group);
/* Once it is closed and no thread can call anything with it. */
void het_group_free(struct het_group *group);
/* The sequence number of the collective that was asked for last; the first is 1. */
uint64_t het_group_sequence(struct het_group *group);
/* End what the group is waiting for, and all that it will wait for. */
void het_abort(struct het_group *group);

/* ---- plans ---- */

struct het_plan;
/* Words as docs/architecture.md lays them out. NULL where they are no plan of this version. */
struct het_plan *het_plan_load(const int64_t *words, int64_t count);
void het_plan_free(struct het_plan *plan);

/* ---- collectives: those of a group run one after the other, as they were asked for; groups do not wait for each other ---- */

/* `what` and `count` are compared with every message. Timeouts are in nanoseconds, from when a collective's turn comes. */
struct het_call {
    struct het_group *group;
    const struct het_plan *plan;
    uint64_t what, count;
    uint64_t scratch_bytes;
};
/* Run one to its end: in this thread, unless others of the group are before it. Returns a het_status; where that is not HET_OK,
 * het_error tells more until this thread's next call of het_run. */
int32_t het_run(const struct het_call *call, void *input, void *output, int64_t timeout);
const struct het_error *het_error(void);

/* One that runs by itself, in the progress thread of the process. All that it was given lives until it is done. */
struct het_ticket;
/* NULL without memory. `tag`, unless 0, is the caller's name for it. */
struct het_ticket *het_start(const struct het_call *call, void *input, void *output, int64_t timeout, uint64_t tag);
/* Whether it is done, waiting so many nanoseconds for that. */
int32_t het_wait(struct het_ticket *ticket, int64_t timeout);
/* How it went, once it is done; its status may be HET_OK. */
const struct het_error *het_ticket_error(const struct het_ticket *ticket);
/* Once it is done. */
void het_ticket_free(struct het_ticket *ticket);
/* Have het_finished tell of it. Returns 1 instead where it is done already. */
int32_t het_watch(struct het_ticket *ticket);
/* Wait for tickets that are watched, or that fail, to be done. Returns how many tags were written, `most` at most; -1 once
 * het_stop was called. */
int32_t het_finished(uint64_t *tags, int32_t most);
/* The process is about to end: nothing that was started touches any memory from here on. */
void het_stop(void);

/* ---- heartbeats: over the control connection to each peer process ---- */

enum { HET_EVENT_LOST = 1, HET_EVENT_ABORT = 2, HET_TEXT = 1 << 16 };
struct het_event {
    uint64_t peer;
    int32_t kind, code; /* a peer is lost: an errno says why, ETIMEDOUT where it was silent for too long */
    uint64_t group;     /* a peer tells that this group was aborted, and why */
    uint32_t bytes;
    char text[HET_TEXT];
};
/* From now on send a beat as often as this, and expect to hear something within the limit (nanoseconds), until the peer is
 * lost; the socket stays open until then. Returns the peer's number, 0 without memory or a thread. */
uint64_t het_pulse_add(int32_t fd, int64_t beat_every, int64_t limit);
/* Tell a peer that a group was aborted. One that cannot be told is lost anyway. */
void het_pulse_tell(uint64_t peer, uint64_t group, const char *text, uint32_t bytes);
/* Wait for the next event. */
void het_pulse_next(struct het_event *event);

#endif

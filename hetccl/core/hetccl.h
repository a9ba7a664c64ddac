/* The C core's interface, in whole: what Python calls through ctypes. Every call may be made without the GIL. */
#ifndef HETCCL_H
#define HETCCL_H

#include <stddef.h>
#include <stdint.h>

/* Versions of this interface and of the flat plan; the caller compares them before anything else. */
enum { HET_INTERFACE = 2, HET_PLAN_VERSION = 1 };
int het_interface(void);

enum het_status {
    HET_OK = 0,
    HET_TIMEOUT = 1,  /* the deadline passed; `waiting` has the ranks */
    HET_DEAD = 2,     /* the link to `rank` broke, with `code` as errno */
    HET_ABORTED = 3,  /* het_abort was called for this group */
    HET_MISMATCH = 4, /* `rank` runs another collective: its `sequence`, `what`, `count` */
    HET_BUSY = 5,     /* the group runs another collective in another thread */
    HET_MEMORY = 6,
    HET_INVALID = 7   /* the plan does not fit the group */
};

struct het_error {
    int32_t status, rank, code, waiting_count;
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
/* `link` leads to rank `peer`: before the first plan that has to do with it, and while no collective is running. */
void het_group_connect(struct het_group *group, int32_t peer, struct het_link *link);
/* No collective of the group may be running. Messages of it that still arrive are dropped. */
void het_group_close(struct het_group *group);
/* End what the group is waiting for, and all that it will wait for. */
void het_abort(struct het_group *group);

/* ---- plans ---- */

struct het_plan;
/* Words as docs/architecture.md lays them out. NULL where they are no plan of this version. */
struct het_plan *het_plan_load(const int64_t *words, int64_t count);
void het_plan_free(struct het_plan *plan);

/* A collective. `what` and `count` are compared with every message; the timeout is in nanoseconds. */
struct het_call {
    struct het_group *group;
    const struct het_plan *plan;
    void *bases[3]; /* input, output, scratch */
    uint64_t sequence, what, count;
    int64_t timeout;
    struct het_error *error;
};
/* Run one to its end. Returns a het_status, and tells more in `error` where that is not HET_OK. */
int32_t het_run(const struct het_call *call);

#endif

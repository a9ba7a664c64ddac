/* Ranks as processes, groups as threads: all_reduces of changing sizes over shared memory and sockets at once, some run by the
 * thread itself, some started, several at a time. At the end each rank tells each other that it aborts, and goes.
 *
 *   core_stress RANKS GROUPS TURNS       exit 0 where every result is right */
#include "hetccl.h"
#include "reduce.h"
#include "plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

enum { MOST_RANKS = 8, SLOTS = 4, SLOT_BYTES = 4096, LARGEST = 40000 };

static int ranks, groups, turns, rank;
static struct het_link *links[MOST_RANKS];

static int64_t put_operand(int64_t *words_, int64_t n, int space, int peer, int lane, int64_t offset) {
    int64_t *at = words_ + 4 * n;
    at[0] = space, at[1] = peer, at[2] = lane, at[3] = offset;
    return n + 1;
}

/* The all_reduce of hetccl/plan/collectives.py: each rank owns a piece. */
static struct het_plan *all_reduce(int64_t count) {
    int64_t steps[3 * MOST_RANKS][8], operands[8 * MOST_RANKS * 4], all[4 + 3 * MOST_RANKS * 8 + 8 * MOST_RANKS * 4];
    int64_t n = 0, k = 0, share = (count + ranks - 1) / ranks;
    for (int phase = 0; phase < 3; phase++)
        for (int p = 0; p < ranks; p++) {
            int owner = phase == 1 ? rank : p;
            int64_t from = owner * share < count ? owner * share : count, to = from + share < count ? from + share : count;
            if ((phase == 1) != (p == rank) || to == from) continue;
            int64_t first = k, sources = 1;
            if (phase == 0) k = put_operand(operands, k, HET_INPUT, 0, 0, from);
            if (phase == 2) k = put_operand(operands, k, HET_WIRE, p, 1, 0);
            if (phase == 1)
                for (int q = 0; q < ranks; q++)
                    k = q == rank ? put_operand(operands, k, HET_INPUT, 0, 0, from) : put_operand(operands, k, HET_WIRE, q, 0, 0);
            sources = k - first;
            int64_t target = k;
            if (phase == 0) k = put_operand(operands, k, HET_WIRE, p, 0, 0);
            else k = put_operand(operands, k, HET_OUTPUT, 0, 0, from);
            if (phase == 1)
                for (int q = 0; q < ranks; q++)
                    if (q != rank) k = put_operand(operands, k, HET_WIRE, q, 1, 0);
            int64_t step[8] = {HET_I32, HET_SUM, to - from, 1, first, sources, target, k - target};
            memcpy(steps[n++], step, sizeof step);
        }
    int64_t header[4] = {HET_PLAN_VERSION, n, k, 0}, total = 0;
    memcpy(all, header, sizeof header), total += 4;
    memcpy(all + total, steps, (size_t)n * sizeof steps[0]), total += 8 * n;
    memcpy(all + total, operands, (size_t)k * 4 * sizeof *operands), total += 4 * k;
    return het_plan_load(all, total);
}

enum { AT_A_TIME = 3 };

static void *work(void *argument) {
    uint64_t group_number = (uint64_t)(uintptr_t)argument;
    struct het_group *group = het_group_open(1000 + group_number, rank, ranks);
    for (int p = 0; p < ranks; p++)
        if (p != rank) het_group_connect(group, p, links[p]);
    uint64_t random = group_number * 7919 + 17, wrong = 0;
    int32_t *data[AT_A_TIME];
    for (int k = 0; k < AT_A_TIME; k++) data[k] = malloc(LARGEST * sizeof *data[k]);
    for (int turn = 1; turn <= turns && !wrong; turn++) {
        struct het_plan *plans[AT_A_TIME];
        struct het_call calls[AT_A_TIME];
        struct het_ticket *tickets[AT_A_TIME] = {NULL};
        int at_a_time = 1 + turn % AT_A_TIME, status = 0;
        for (int k = 0; k < at_a_time; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int64_t count = (int64_t)((random >> 33) % LARGEST) / (turn % 3 ? 1 : 1000);
            for (int64_t i = 0; i < count; i++) data[k][i] = (int32_t)(i + rank + turn);
            plans[k] = all_reduce(count);
            calls[k] = (struct het_call){group, plans[k], 1, (uint64_t)count, 100};
            if (k + 1 == at_a_time) status |= het_run(&calls[k], data[k], data[k], 60000000000);
            else tickets[k] = het_start(&calls[k], data[k], data[k], 60000000000, group_number << 32 | (uint64_t)turn << 8 | (uint64_t)k);
            if (tickets[k]) (void)het_watch(tickets[k]);
        }
        for (int k = 0; k < at_a_time; k++) {
            if (tickets[k]) {
                while (!het_wait(tickets[k], 1000000)) {
                }
                status |= het_ticket_error(tickets[k])->status;
                het_ticket_free(tickets[k]);
            }
            for (int64_t i = 0; i < (int64_t)calls[k].count; i++)
                wrong += data[k][i] != (int32_t)((i + turn) * ranks + ranks * (ranks - 1) / 2);
            het_plan_free(plans[k]);
        }
        if (status || wrong) fprintf(stderr, "rank %d group %d turn %d: status %d, %d wrong\n", rank, (int)group_number, turn, status, (int)wrong);
        wrong += status != 0;
    }
    for (int k = 0; k < AT_A_TIME; k++) free(data[k]);
    het_group_close(group);
    het_group_free(group);
    return (void *)(uintptr_t)wrong;
}

static void *listen_for_ends(void *count) {
    uint64_t tags[8];
    for (int32_t n; (n = het_finished(tags, 8)) > 0;) *(int *)count += n;
    return NULL;
}

static int control[MOST_RANKS];

/* Tell all others of an abort, and hear of theirs, and that they are gone. Returns what is missing. */
static int part(void) {
    static struct het_event event;
    uint64_t ids[MOST_RANKS];
    int aborts = 0, gone = 0;
    char text[100];
    memset(text, 'x', sizeof text);
    for (int p = 0; p < ranks; p++)
        if (p != rank) ids[p] = het_pulse_add(control[p], 5000000, 30000000000);
    for (int p = 0; p < ranks; p++)
        if (p != rank) het_pulse_tell(ids[p], 1000 + (uint64_t)rank, text, sizeof text);
    while (aborts < ranks - 1) {
        het_pulse_next(&event);
        aborts += event.kind == HET_EVENT_ABORT && event.bytes == sizeof text && !memcmp(event.text, text, sizeof text);
        gone += event.kind == HET_EVENT_LOST;
    }
    for (int p = 0; p < ranks; p++)
        if (p != rank) (void)shutdown(control[p], SHUT_WR);
    for (; gone < ranks - 1; gone++) {
        het_pulse_next(&event);
        if (event.kind != HET_EVENT_LOST || event.code != ECONNRESET) return 1;
    }
    return 0;
}

static void connect_pairs(int sockets[MOST_RANKS][MOST_RANKS]) {
    for (int a = 0; a < ranks; a++)
        for (int b = a + 1; b < ranks; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) exit(3);
            sockets[a][b] = pair[0], sockets[b][a] = pair[1];
        }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    ranks = atoi(argv[1]), groups = atoi(argv[2]), turns = atoi(argv[3]);
    size_t ring = (het_ring_size(SLOTS, SLOT_BYTES) + 63) / 64 * 64;
    unsigned char *memory = mmap(NULL, ring * MOST_RANKS * MOST_RANKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int sockets[MOST_RANKS][MOST_RANKS], controls[MOST_RANKS][MOST_RANKS];
    connect_pairs(sockets);
    connect_pairs(controls);
    for (int child = 1; child < ranks; child++)
        if (!fork()) {
            rank = child;
            break;
        }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            if (a != rank && a != b) close(sockets[a][b]), close(controls[a][b]);
    for (int p = 0; p < ranks; p++) {
        if (p == rank) continue;
        int32_t fd = sockets[rank][p];
        control[p] = controls[rank][p];
        if ((rank + p) % 2) links[p] = het_link_open_tcp(&fd, 1, SLOTS, SLOT_BYTES);
        else links[p] = het_link_open_shm(memory + ring * (size_t)(rank * MOST_RANKS + p), memory + ring * (size_t)(p * MOST_RANKS + rank), SLOTS, SLOT_BYTES);
    }
    pthread_t threads[16], listener;
    int told = 0;
    pthread_create(&listener, NULL, listen_for_ends, &told);
    for (int g = 0; g < groups; g++) pthread_create(&threads[g], NULL, work, (void *)(uintptr_t)g);
    uintptr_t wrong = 0;
    for (int g = 0; g < groups; g++) {
        void *result;
        pthread_join(threads[g], &result);
        wrong += (uintptr_t)result;
    }
    wrong += (uintptr_t)part(); /* links close when all have what they need: some may still read what this rank sent */
    for (int child = 1; !rank && child < ranks; child++) {
        int status;
        wait(&status);
        wrong += status != 0;
    }
    for (int p = 0; p < ranks; p++)
        if (p != rank) het_link_close(links[p]);
    het_stop();
    pthread_join(listener, NULL);
    return wrong != 0;
}

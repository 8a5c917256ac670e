/* The limit of several hosts: a ring allreduce in the ranks themselves, over one bare TCP connection to the next rank. No
 * other process takes part, nothing is authenticated, numbered or kept for a second attempt; a segment is added while it
 * is in the cache, and no rank ever sleeps unless there are more of them than CPUs here (hosts may be made out of one
 * machine). The ring is that of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", J. Parallel Distrib. Comput. 69 (2009).
 *
 *     cc -O3 -march=native -o limit_tcp limit_tcp.c -lm
 *     gorun -np 2 -H host1,host2 --no-tag-output ./limit_tcp allreduce SECONDS BYTES...
 *
 * gorun only starts the ranks: they find each other at MASTER_ADDR and MASTER_PORT. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

enum { SEGMENT = 64 << 10, MAX_RANKS = 64 };

static int to_next, from_previous, patience;

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static int can(enum operation op) { return op == ALLREDUCE; }

static float *memory(size_t bytes) {
	size_t page = 2 << 20, room = (bytes + page - 1) / page * page;
	float *p = aligned_alloc(page, room);
	if (!p)
		fail("limit_tcp: allocate memory");
	madvise(p, room, MADV_HUGEPAGE);
	return p;
}

static void discard_memory(float *data) { free(data); }

/* idle is called after an attempt to read and to write that moved nothing. */
static void idle(int *spins, int writes) {
	if (++*spins < patience)
		return;
	*spins = 0;
	struct pollfd both[] = {{from_previous, POLLIN, 0}, {to_next, POLLOUT, 0}};
	poll(both, writes ? 2 : 1, -1);
}

static size_t moved(ssize_t n, const char *what) {
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		fail(what);
	return n < 0 ? 0 : (size_t)n;
}

/* chunk returns where the bytes at a place of the stream lie in the tensor, and how many follow there. In step s of the
 * 2(N-1) a rank sends the chunk that it got in step s-1; every chunk has the same length. */
static size_t chunk(size_t at, size_t length, int first, size_t *rest) {
	int step = (int)(at / length), which = ((first - step) % ranks + ranks) % ranks;
	*rest = length - at % length;
	return (size_t)which * length + at % length;
}

/* ring reduces bytes in place, a multiple of 4 * ranks. What comes in step s leaves in step s+1, segment by segment. */
static void ring(char *data, size_t bytes) {
	static float scratch[SEGMENT / sizeof(float)];
	size_t length = bytes / (size_t)ranks, adding = length * (size_t)(ranks - 1), all = 2 * adding;
	size_t sent = 0, got = 0, held = 0, rest;
	for (int spins = 0; sent < all || got < all;) {
		size_t before = sent + got + held, ready = got + length < all ? got + length : all;
		if (sent < ready) {
			size_t place = chunk(sent, length, rank, &rest);
			size_t n = ready - sent < rest ? ready - sent : rest;
			sent += moved(send(to_next, data + place, n, MSG_DONTWAIT | MSG_NOSIGNAL), "limit_tcp: send");
		}
		if (got < all) {
			char *place = data + chunk(got, length, rank - 1, &rest);
			size_t n = rest < SEGMENT ? rest : SEGMENT;
			if (got < adding) {
				held += moved(recv(from_previous, (char *)scratch + held, n - held, MSG_DONTWAIT), "limit_tcp: receive");
				size_t whole = held / sizeof(float);
				for (size_t i = 0; held == n && i < whole; i++)
					((float *)place)[i] += scratch[i];
				if (held == n) {
					got += n;
					held = 0;
				}
			} else {
				got += moved(recv(from_previous, place, n, MSG_DONTWAIT), "limit_tcp: receive");
			}
		}
		if (sent + got + held > before)
			spins = 0;
		else
			idle(&spins, sent < ready);
	}
}

/* operate pads what does not fill all chunks. */
static void operate(float *data, float *result, int n) {
	(void)result;
	int even = n / ranks * ranks;
	if (even)
		ring((char *)data, (size_t)even * sizeof(float));
	if (even < n) {
		float last[MAX_RANKS] = {0};
		memcpy(last, data + even, (size_t)(n - even) * sizeof(float));
		ring((char *)last, (size_t)ranks * sizeof(float));
		memcpy(data + even, last, (size_t)(n - even) * sizeof(float));
	}
}

static void meet(void) {
	float one[MAX_RANKS] = {0};
	ring((char *)one, (size_t)ranks * sizeof(float));
}

/* slowest passes the vector round the ring twice, from rank to rank; the second time it is complete. */
static void slowest(double *v, int n) {
	static double theirs[MAX_ITERS];
	int flags = MSG_WAITALL | MSG_NOSIGNAL;
	for (int step = 0; step < 2 * ranks; step++) {
		if (step % ranks != rank) {
			if ((step + 1) % ranks == rank) {
				for (size_t got = 0; got < sizeof *v * (size_t)n;)
					got += moved(recv(from_previous, (char *)theirs + got, sizeof *v * (size_t)n - got, flags), "limit_tcp: receive");
				for (int i = 0; i < n; i++)
					v[i] = fmax(v[i], theirs[i]);
			}
			continue;
		}
		for (size_t done = 0; done < sizeof *v * (size_t)n;)
			done += moved(send(to_next, (char *)v + done, sizeof *v * (size_t)n - done, flags), "limit_tcp: send");
	}
}

static int number(const char *name) {
	const char *text = getenv(name);
	if (!text) {
		fprintf(stderr, "limit_tcp: error: no %s: gorun or torchrun starts the ranks\n", name);
		exit(2);
	}
	return atoi(text);
}

static int dial(const struct sockaddr_storage *address, socklen_t length) {
	for (int attempts = 0; attempts < 1000; attempts++) {
		int fd = socket(address->ss_family, SOCK_STREAM, 0);
		if (fd >= 0 && connect(fd, (const struct sockaddr *)address, length) == 0)
			return fd;
		close(fd);
		poll(NULL, 0, 10); /* rank 0 may not listen yet */
	}
	fail("limit_tcp: connect");
	return -1;
}

static void exchange(int fd, void *v, size_t n, int sends) {
	ssize_t m = sends ? send(fd, v, n, MSG_NOSIGNAL) : recv(fd, v, n, MSG_WAITALL);
	if (m != (ssize_t)n)
		fail("limit_tcp: meet the others");
}

/* join makes the ring: rank 0 learns where the others listen, and tells them. */
static void join(void) {
	struct addrinfo *master, hints = {.ai_socktype = SOCK_STREAM};
	const char *name = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
	if (!name || !port || getaddrinfo(name, port, &hints, &master)) {
		fprintf(stderr, "limit_tcp: error: no host at MASTER_ADDR and MASTER_PORT\n");
		exit(2);
	}
	struct sockaddr_storage table[MAX_RANKS] = {0}, own = {0};
	socklen_t length = master->ai_addrlen;
	int listener = socket(master->ai_family, SOCK_STREAM, 0), yes = 1, members[MAX_RANKS];
	own.ss_family = (sa_family_t)master->ai_family;
	if (rank == 0)
		memcpy(&own, master->ai_addr, length);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (struct sockaddr *)&own, length) || listen(listener, MAX_RANKS))
		fail("limit_tcp: listen");
	in_port_t mine = 0; /* lies at the same place for both families */
	getsockname(listener, (struct sockaddr *)&own, &length);
	mine = ((struct sockaddr_in *)&own)->sin_port;
	memcpy(&table[0], master->ai_addr, master->ai_addrlen);
	for (int i = 1; rank == 0 && i < ranks; i++) {
		struct sockaddr_storage peer;
		socklen_t room = sizeof peer;
		int fd = accept(listener, (struct sockaddr *)&peer, &room), who;
		exchange(fd, &who, sizeof who, 0);
		exchange(fd, &((struct sockaddr_in *)&peer)->sin_port, sizeof mine, 0);
		if (who < 1 || who >= ranks) {
			fprintf(stderr, "limit_tcp: error: a stranger calls itself rank %d\n", who);
			exit(1);
		}
		members[who] = fd;
		table[who] = peer;
	}
	if (rank) {
		int fd = dial(&table[0], length);
		exchange(fd, &rank, sizeof rank, 1);
		exchange(fd, &mine, sizeof mine, 1);
		exchange(fd, table, sizeof table, 0);
		close(fd);
	}
	for (int i = 1; rank == 0 && i < ranks; i++) {
		exchange(members[i], table, sizeof table, 1);
		close(members[i]);
	}
	to_next = dial(&table[(rank + 1) % ranks], length);
	from_previous = accept(listener, NULL, NULL);
	setsockopt(to_next, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	close(listener);
	freeaddrinfo(master);
}

int main(int argc, char **argv) {
	rank = number("RANK");
	ranks = number("WORLD_SIZE");
	if (ranks < 2 || ranks > MAX_RANKS || rank < 0 || rank >= ranks) {
		fprintf(stderr, "limit_tcp: error: from 2 to %d ranks\n", MAX_RANKS);
		return 2;
	}
	patience = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 1 : 20000;
	join();
	measure_all(argc, argv);
	return 0;
}

/* A part of gorun.c: the functions of gorun.h for each kind of operation. */

int gorun_start_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op,
			  gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_ALLREDUCE, .name = name, .in = in, .out = out,
				  .dims = &count, .ndim = 1, .type = type, .op = op}, handle);
}

int gorun_start_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_BROADCAST, .name = name, .in = data, .out = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = root}, handle);
}

int gorun_start_barrier(const char *name, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_BARRIER, .name = name, .op = GORUN_SUM}, handle);
}

int gorun_start_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type,
			  gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_ALLGATHER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM}, handle);
}

/* current_size returns the size of the set that splits are for. */
static int current_size(void) {
	acquire();
	int size = set_size(world.set);
	let_go();
	return size;
}

int gorun_start_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits,
			 gorun_type type, gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_ALLTOALL, .name = name, .in = in, .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM,
				  .splits = splits, .nsplits = splits ? current_size() : 0}, handle);
}

int gorun_start_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			      gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_REDUCESCATTER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = op}, handle);
}

int gorun_start_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root,
		       gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_REDUCE, .name = name, .in = in,
				  .dims = &count, .ndim = 1, .type = type, .op = op, .root = root}, handle);
}

int gorun_start_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root,
		       gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	return begin((gorun_call){.kind = GORUN_GATHER, .name = name, .in = in,
				  .dims = dims, .ndim = 2, .type = type, .op = GORUN_SUM, .root = root}, handle);
}

int gorun_start_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
			int root, gorun_handle *handle) {
	const int64_t dims[] = {rows, width};
	const int32_t *own = root == gorun_rank() ? splits : NULL;
	return begin((gorun_call){.kind = GORUN_SCATTER, .name = name, .in = in, .dims = dims, .ndim = 2,
				  .type = type, .op = GORUN_SUM, .root = root,
				  .splits = own, .nsplits = own ? current_size() : 0}, handle);
}

int gorun_start_send(const char *name, const void *data, int64_t count, gorun_type type, int to, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_SEND, .name = name, .in = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = to}, handle);
}

int gorun_start_recv(const char *name, void *data, int64_t count, gorun_type type, int from, gorun_handle *handle) {
	return begin((gorun_call){.kind = GORUN_RECV, .name = name, .out = data,
				  .dims = &count, .ndim = 1, .type = type, .op = GORUN_SUM, .root = from}, handle);
}

/* number runs an operation whose result is a number. */
static int number(gorun_call c, int *n) {
	gorun_handle h = 0;
	gorun_result r;
	int code = n ? begin(c, &h) : fail(GORUN_INVALID, "submit %s: no place for the answer", kinds[(int)c.kind]);
	if (code || (code = gorun_wait(h, &r)))
		return code;
	if (r.counts)
		*n = (int)r.counts[0];
	return gorun_release(&r);
}

int gorun_join(int *last) { return number((gorun_call){.kind = GORUN_JOIN, .name = "join", .op = GORUN_SUM}, last); }

int gorun_add_set(const int *ranks, int count, int *set) {
	int code;
	if (count < 1 || !ranks)
		return fail(GORUN_INVALID, "add process set: %d ranks", count);
	int32_t *list = malloc(sizeof *list * (size_t)count);
	if (!list)
		return fail(GORUN_MEMORY, "add process set: out of memory");
	for (int i = 0; i < count; i++)
		list[i] = ranks[i];
	code = number((gorun_call){.kind = GORUN_ADD_GROUP, .name = "process sets", .op = GORUN_SUM, .splits = list, .nsplits = count}, set);
	free(list);
	return code;
}

int gorun_remove_set(int set) {
	gorun_handle h = 0;
	int code = begin((gorun_call){.kind = GORUN_REMOVE_GROUP, .name = "process sets", .op = GORUN_SUM, .root = set}, &h);
	return code ? code : gorun_wait(h, NULL);
}

int gorun_use_set(int set) {
	int code = enter();
	if (code)
		return code;
	if (set < 0 || !set_size((uint32_t)set))
		return leave(fail(GORUN_INVALID, "use process set: there is none with number %d", set));
	world.set = (uint32_t)set;
	return leave(GORUN_OK);
}

int gorun_use_wire(gorun_wire wire) {
	int code = enter();
	if (code)
		return code;
	if (wire < GORUN_WIRE_DEFAULT || wire > GORUN_WIRE_INT8)
		return leave(fail(GORUN_INVALID, "use wire compression: unknown number %d", (int)wire));
	world.wire = (int)wire;
	return leave(GORUN_OK);
}

/* then_wait takes a pointer to the handle, because C does not define the order in which arguments are evaluated. */
static int then_wait(int code, const gorun_handle *handle, gorun_result *result) {
	return code || *handle == MET ? code : gorun_wait(*handle, result);
}

int gorun_allreduce(const char *name, const void *in, void *out, int64_t count, gorun_type type, gorun_op op) {
	gorun_handle h = 0;
	gorun_call c = {.kind = GORUN_ALLREDUCE, .name = name, .in = in, .out = out, .dims = &count, .ndim = 1, .type = type, .op = op,
			.set = CURRENT, .wire = (gorun_wire)CURRENT, .prescale = 1, .postscale = 1};
	return then_wait(start(c, 1, &h), &h, NULL);
}

int gorun_broadcast(const char *name, void *data, int64_t count, gorun_type type, int root) {
	gorun_handle h = 0;
	return then_wait(gorun_start_broadcast(name, data, count, type, root, &h), &h, NULL);
}

int gorun_barrier(const char *name) {
	gorun_handle h = 0;
	return then_wait(gorun_start_barrier(name, &h), &h, NULL);
}

int gorun_allgather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_allgather(name, in, rows, width, type, &h), &h, result);
}

int gorun_alltoall(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type,
		   gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_alltoall(name, in, rows, width, splits, type, &h), &h, result);
}

int gorun_reducescatter(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, gorun_op op,
			gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_reducescatter(name, in, rows, width, type, op, &h), &h, result);
}

int gorun_reduce(const char *name, const void *in, int64_t count, gorun_type type, gorun_op op, int root, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_reduce(name, in, count, type, op, root, &h), &h, result);
}

int gorun_gather(const char *name, const void *in, int64_t rows, int64_t width, gorun_type type, int root, gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_gather(name, in, rows, width, type, root, &h), &h, result);
}

int gorun_scatter(const char *name, const void *in, int64_t rows, int64_t width, const int32_t *splits, gorun_type type, int root,
		  gorun_result *result) {
	gorun_handle h = 0;
	return then_wait(gorun_start_scatter(name, in, rows, width, splits, type, root, &h), &h, result);
}

int gorun_send(const char *name, const void *data, int64_t count, gorun_type type, int to) {
	gorun_handle h = 0;
	return then_wait(gorun_start_send(name, data, count, type, to, &h), &h, NULL);
}

int gorun_recv(const char *name, void *data, int64_t count, gorun_type type, int from) {
	gorun_handle h = 0;
	return then_wait(gorun_start_recv(name, data, count, type, from, &h), &h, NULL);
}

/* A part of gorun.c: how an operation ends for its caller. */

int gorun_test(gorun_handle handle, int *done) {
	int code = enter(), none = 0;
	struct operation *o;
	if (code)
		return code;
	if (!done || !(o = held(handle, DONE)))
		return leave(done ? GORUN_INVALID : fail(GORUN_INVALID, "test operation: no place for the answer"));
	while (o->stage == OPEN && !none && !world.reading)
		if ((code = receive(MSG_DONTWAIT, &none)))
			return leave(code);
	*done = o->stage == DONE;
	if (*done)
		free_name(o);
	return leave(GORUN_OK);
}

int gorun_test_for(gorun_handle handle, double seconds, int *done) {
	struct operation *o;
	int code = gorun_test(handle, done);
	if (code || *done || (code = enter()))
		return code;
	if (!(o = held(handle, DONE)))
		return leave(GORUN_INVALID);
	begin_wait(seconds);
	code = o->stage == OPEN ? until(ended, o) : GORUN_OK;
	end_wait();
	if (code == UNFINISHED || (!code && !(code = ready())))
		code = GORUN_OK, *done = (o = held(handle, DONE)) && o->stage == DONE;
	if (*done)
		free_name(o);
	return leave(code);
}

/* give_back frees a result. */
static int give_back(struct operation *o) {
	int code = GORUN_OK;
	if (world.fd >= 0 && o->region != NO_REGION)
		code = send_pair(RELEASE, (uint32_t)(o - world.operations));
	close_operation(o);
	return code;
}

/* note_set remembers the size of a set that was added, or forgets a set that was removed. */
static int note_set(const struct operation *o) {
	if (o->kind == REMOVE_GROUP) {
		for (size_t i = 0; i < world.set_count; i++)
			if (world.sets[i].number == (uint32_t)o->set)
				world.sets[i] = world.sets[--world.set_count];
		if (world.set == (uint32_t)o->set)
			world.set = 0;
		return GORUN_OK;
	}
	if (o->kind != ADD_GROUP || !o->counts)
		return GORUN_OK;
	struct set *sets = realloc(world.sets, (world.set_count + 1) * sizeof *sets);
	if (!sets)
		return fail(GORUN_MEMORY, "add process set: out of memory");
	world.sets = sets;
	sets[world.set_count++] = (struct set){(uint32_t)o->counts[0], o->set_size};
	return GORUN_OK;
}

/* finish ends an operation for its caller, and hands over the result. */
static int finish(struct operation *o, gorun_handle handle, gorun_result *result) {
	int code = o->code;
	if (code) {
		fail(code, "%s", o->text ? o->text : "wait for operation: out of memory");
		close_operation(o);
		return code;
	}
	if (o->target || o->npieces) {
		gorun_call to = {.out = o->target, .pieces = o->pieces, .npieces = o->npieces};
		o->stage = BUSY;
		let_go();
		if (o->bytes > QUICK)
			pause_host();
		copy_out(o->staged, &to, 0, o->bytes);
		acquire();
		o->target = NULL, o->npieces = 0;
	}
	if ((code = note_set(o)) || (!has_result(o->kind) && !has_numbers(o->kind))) {
		close_operation(o);
		return code;
	}
	if (!result)
		return give_back(o);
	unstage(o);
	free_name(o);
	o->stage = READABLE;
	*result = (gorun_result){o->data, o->data_bytes, o->rows, o->counts, handle};
	return GORUN_OK;
}

int gorun_wait(gorun_handle handle, gorun_result *result) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!(o = held(handle, DONE)))
		return leave(GORUN_INVALID);
	if (o->then)
		return leave(fail(GORUN_INVALID, "wait for operation: it is for the function that gorun_then has named"));
	if (o->counted)
		return leave(finish(o, handle, result));
	uint64_t began = waits();
	if (o->stage == OPEN && ((code = until(ended, o)) || (code = ready()))) {
		waited(began, 0);
		return leave(code);
	}
	if (!(o = held(handle, DONE))) { /* another thread waited for it too, and was first: it has counted the wait */
		note(COUNT_ACTIVITY, COUNT_COMPUTING);
		return leave(GORUN_INVALID);
	}
	waited(began, (uint64_t)o->took * 1000);
	return leave(finish(o, handle, result));
}

int gorun_release(gorun_result *result) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!result || !(o = held(result->handle, READABLE)) || o->stage != READABLE)
		return leave(fail(GORUN_INVALID, "release result: not a result, or released already"));
	code = give_back(o);
	memset(result, 0, sizeof *result);
	return leave(code);
}

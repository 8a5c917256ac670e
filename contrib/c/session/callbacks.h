/* A part of gorun.c: the thread that calls back. */

/* next_due returns an operation whose callback must run, or NULL. At the end of the session all callbacks must run. */
static struct operation *next_due(void) {
	struct operation *o = world.due;
	if (o && !(world.due = o->later))
		world.last = NULL;
	for (uint32_t i = 0; !o && world.callbacks && (world.lost || world.state != JOINED) && i < world.count; i++)
		if (world.operations[i].then && world.operations[i].stage != UNUSED)
			o = &world.operations[i];
	return o;
}

/* attend receives messages until an operation is due. */
static void attend(void) {
	world.reading = 1;
	while (!world.due && !world.lost && world.state == JOINED) {
		struct pollfd fds[] = {{world.fd, POLLIN, 0}, {world.bell, POLLIN, 0}};
		uint64_t rings;
		int none = 0;
		if (receive(MSG_DONTWAIT, &none) || !none)
			continue;
		world.polling = 1;
		let_go();
		int wrong = poll(fds, 2, -1) < 0 && errno != EINTR ? errno : 0;
		acquire();
		world.polling = 0;
		if (fds[1].revents)
			(void)!read(world.bell, &rings, sizeof rings);
		if (wrong)
			lose(GORUN_LOST, "wait for gorun's daemon: %s", strerror(wrong));
	}
	world.reading = 0;
	appoint();
}

static void *call_back(void *unused) {
	acquire();
	for (;;) {
		struct operation *o = next_due();
		if (o) {
			gorun_done then = o->then;
			void *argument = o->argument;
			o->then = NULL;
			world.callbacks--;
			let_go();
			then(argument);
			acquire();
		} else if (world.state != JOINED)
			break;
		else if (world.callbacks && !world.lost && !world.reading)
			attend();
		else
			pthread_cond_wait(&stirred, &lock);
	}
	let_go();
	return unused;
}

/* employ starts the thread that calls back. It blocks all signals, which are for the threads of the program. */
static int employ(void) {
	sigset_t all, before;
	if (world.calling)
		return GORUN_OK;
	if ((world.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		return fail(GORUN_MEMORY, "call back: eventfd: %s", strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int wrong = pthread_create(&world.caller, NULL, call_back, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (wrong) {
		close(world.bell);
		world.bell = -1;
		return fail(GORUN_MEMORY, "call back: start thread: %s", strerror(wrong));
	}
	world.calling = 1;
	return GORUN_OK;
}

/* dismiss ends that thread, which first calls back for all operations. */
static void dismiss(void) {
	if (!world.calling)
		return;
	stir();
	let_go();
	pthread_join(world.caller, NULL);
	acquire();
	close(world.bell);
	world.bell = -1;
	world.calling = 0;
}

int gorun_then(gorun_handle handle, gorun_done then, void *argument) {
	int code = enter();
	struct operation *o;
	if (code)
		return code;
	if (!(o = held(handle, DONE)))
		return leave(GORUN_INVALID);
	if (!then || o->then)
		return leave(fail(GORUN_INVALID, then ? "call back: this operation has a function already" : "call back: no function"));
	if ((code = employ()))
		return leave(code);
	o->then = then, o->argument = argument;
	world.callbacks++;
	leave_to_callback();
	if (o->stage == DONE)
		end_operation(o);
	stir();
	return leave(GORUN_OK);
}

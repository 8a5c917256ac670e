package ssh

import "context"

type answerKey struct{}

// OnAnswer returns a context with which [Client.Connect] calls f(true) as soon as a host answers: it is up, even if the
// login takes its time. A program in place of the built-in client does not report this, so f is not called then.
// Callers that reconnect after a connection broke call f(false), see [Unanswered].
func OnAnswer(ctx context.Context, f func(answers bool)) context.Context {
	return context.WithValue(ctx, answerKey{}, f)
}

// Answered calls the function in ctx, if any.
func Answered(ctx context.Context) { answers(ctx, true) }

// Unanswered reports that the connection broke, so that the host has to answer again.
func Unanswered(ctx context.Context) { answers(ctx, false) }

func answers(ctx context.Context, yes bool) {
	if f, ok := ctx.Value(answerKey{}).(func(bool)); ok {
		f(yes)
	}
}

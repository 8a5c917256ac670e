package ssh

import "context"

type answerKey struct{}

// OnAnswer returns a context by which [Client.Connect] calls f(true) as soon as a host answers: it is there, even if it should
// take its time to let anybody in. A program in place of the built-in client does not say, so f is not called. Callers
// that connect again after a connection broke call f(false), see [Unanswered].
func OnAnswer(ctx context.Context, f func(answers bool)) context.Context {
	return context.WithValue(ctx, answerKey{}, f)
}

// Answered calls the function that ctx has for that, if any.
func Answered(ctx context.Context) { answers(ctx, true) }

// Unanswered says that the connection broke, so that the host has to answer another time.
func Unanswered(ctx context.Context) { answers(ctx, false) }

func answers(ctx context.Context, yes bool) {
	if f, ok := ctx.Value(answerKey{}).(func(bool)); ok {
		f(yes)
	}
}

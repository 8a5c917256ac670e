package ssh

import "context"

type answerKey struct{}

// OnAnswer returns a context by which [Client.Connect] calls f as soon as a host answers: it is there, even if it should
// take its time to let anybody in. Of a program in place of the built-in client nobody knows: it is never called.
func OnAnswer(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, answerKey{}, f)
}

// Answered calls the function that ctx has for that, if any.
func Answered(ctx context.Context) {
	if f, ok := ctx.Value(answerKey{}).(func()); ok {
		f()
	}
}

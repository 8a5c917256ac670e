package ssh

import (
	"bytes"
	"os/exec"
	"sync"
	"time"
)

// outputHeld is how long the last output of a program that has ended may take to arrive: long enough for a busy machine, and
// not for ever, as what the program left behind may hold its streams open.
const outputHeld = 10 * time.Second

// StartBound starts a program of the user's that must not outlive this process, even if this one is killed. The caller
// calls wait once.
func StartBound(cmd *exec.Cmd) (wait func() error, err error) {
	started, over := make(chan error), make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() {
		defer bindToThread(cmd)()
		started <- cmd.Start()
		<-over
	})
	if err := <-started; err != nil {
		close(over)
		keeper.Wait()
		return nil, err
	}
	return func() error {
		defer keeper.Wait()
		defer close(over)
		return cmd.Wait()
	}, nil
}

// runBound is StartBound for a program that ends by itself or by its context, with all that it prints.
func runBound(cmd *exec.Cmd) (out, said []byte, err error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, outputHeld
	wait, err := StartBound(cmd)
	if err == nil {
		err = wait()
	}
	return stdout.Bytes(), stderr.Bytes(), err
}

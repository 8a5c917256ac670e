// Package top shows a job on a terminal while it runs, as gorun top does: hosts and ranks with what they use, where
// their time goes, and the ring over hosts.
//
// A Model holds what is on the screen; keys and news of the job change it, and Frame draws it, all without a terminal.
// Show runs it on one: bubbletea reads the keys, follows the size of the terminal and writes what has changed.
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"gorun/launcher/jobs"
)

// askInterval is how often the launcher is asked.
const askInterval = time.Second

// Source is the job that is shown: the control socket of its launcher.
type Source interface {
	Status(ctx context.Context) (jobs.State, error)
	Wait(ctx context.Context) (int, error)
}

// End is why Show has returned.
type End struct {
	Ended bool // the job has; else the user left
	Code  int  // of the job
}

// Show shows a job until it ends, the user leaves or ctx ends.
func Show(ctx context.Context, source Source, label string, in, out *os.File, env []string) (End, error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	s := screen{Model: New(label)}
	p := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env), tea.WithoutSignalHandler())
	asking.Go(func() { watch(ctx, source, p.Send) })
	asking.Go(func() {
		code, err := source.Wait(ctx)
		p.Send(over{code, err})
	})
	last, err := p.Run()
	if ctx.Err() != nil && (err == nil || errors.Is(err, tea.ErrProgramKilled)) {
		return End{}, nil
	}
	if err != nil {
		return End{}, fmt.Errorf("show job: %w", err)
	}
	if at, ok := last.(screen); ok && at.over != nil {
		return End{Ended: at.over.err == nil, Code: at.over.code}, at.over.err
	}
	return End{}, nil
}

// watch asks for the state of the job until ctx ends.
func watch(ctx context.Context, source Source, send func(tea.Msg)) {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		if state, err := source.Status(ctx); err == nil {
			send(news{state, time.Now()})
		} else {
			send(failed{err})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// What happens beside keys.
type (
	news struct {
		state jobs.State
		at    time.Time
	}
	failed struct{ err error }
	over   struct {
		code int
		err  error
	}
)

// screen is a Model as bubbletea wants it.
type screen struct {
	Model
	over *over
}

func (s screen) Init() tea.Cmd { return nil }

func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	leaves := false
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.Model = s.Resize(msg.Width, msg.Height)
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+z" {
			return s, tea.Suspend
		}
		s.Model, leaves = s.Press(msg.String(), msg.Text)
	case news:
		s.Model = s.Take(msg.state, msg.at)
	case failed:
		s.Model = s.Failed(msg.err)
	case over:
		s.over, leaves = &msg, true
	}
	if leaves {
		return s, tea.Quit
	}
	return s, nil
}

func (s screen) View() tea.View {
	v := tea.NewView(s.Frame())
	v.AltScreen, v.WindowTitle = true, "gorun top "+s.label
	return v
}

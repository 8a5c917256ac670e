package failover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gorun/rendezvous/authority"
)

// keepOver is how long a job that has ended is remembered, for hosts that were down when it did.
const keepOver = 24 * time.Hour

// States saves the states of a host's electors, a file for each job.
type States struct{ Dir string }

// StatesOf returns the states that a host has saved in the user's state directory, which hosts may share. It moves the
// states that an earlier version has saved.
func StatesOf(stateDir, host string) States {
	dir := filepath.Join(stateDir, "failover", host)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		moveStates(filepath.Join(stateDir, "heirs"), host, dir)
	}
	return States{dir}
}

// moveStates moves the states of a host to a directory of another name. If it cannot, their jobs are not continued.
func moveStates(from, host, to string) {
	if _, err := os.Stat(filepath.Join(from, host)); err != nil || os.MkdirAll(filepath.Dir(to), 0o700) != nil {
		return
	}
	os.Rename(filepath.Join(from, host), to)
	os.Remove(from) // if no other host has states there
}

// Load returns the states of all jobs and removes the ones that ended long ago.
func (s States) Load() ([]authority.State, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list jobs to carry on: %w", err)
	}
	var out []authority.State
	var errs []error
	for _, file := range files {
		var state authority.State
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read job to carry on: %w", err))
			continue
		}
		if info, err := os.Stat(file); state.Over && err == nil && time.Since(info.ModTime()) > keepOver {
			os.Remove(file)
			continue
		}
		out = append(out, state)
	}
	return out, errors.Join(errs...)
}

// Save saves a state so that it survives a loss of power. Of a job that has ended it saves no environment.
func (s States) Save(state authority.State) error {
	fail := func(err error) error { return fmt.Errorf("keep job %s: %w", state.Job, err) }
	if state.Job == "" || strings.Trim(state.Job, "0123456789abcdef") != "" {
		return fail(errors.New("not the name of a job"))
	}
	var last Handover
	if state.Over && json.Unmarshal(state.Value, &last) == nil {
		last.forget()
		state.Value, _ = json.Marshal(last) // it was read from JSON
	}
	text, err := json.Marshal(state)
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fail(err)
	}
	file, err := os.CreateTemp(s.Dir, "new-*") // readable only to the user: it holds the job's secret
	if err != nil {
		return fail(err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(s.Dir, state.Job+".json"))
	}
	if err == nil {
		err = syncDir(s.Dir)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// syncDir writes the names in a directory to disk: without that, a loss of power can undo a rename.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

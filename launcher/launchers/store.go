package launchers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gorun/rendezvous/authority"
)

// keepOver is how long a job that has ended is remembered, for hosts that were down when it did.
const keepOver = 24 * time.Hour

// statesDir is where the electors of this host save their states, a file for each job. Hosts may share the directory
// above it.
func (h Runner) statesDir() (string, error) {
	dir, err := h.StateDir()
	return filepath.Join(dir, "failover", h.Origin.Name), err
}

// Load implements standing.Failover. It removes the states of jobs that ended long ago.
func (h Runner) Load() ([]authority.State, error) {
	dir, err := h.statesDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
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

// Save implements standing.Failover: a saved state survives a loss of power. Of a job that has ended it saves no environment.
func (h Runner) Save(state authority.State) error {
	fail := func(err error) error { return fmt.Errorf("keep job %s: %w", state.Job, err) }
	if state.Job == "" || strings.Trim(state.Job, "0123456789abcdef") != "" {
		return fail(errors.New("not the name of a job"))
	}
	var last handover
	if state.Over && json.Unmarshal(state.Value, &last) == nil {
		last.forget()
		state.Value, _ = json.Marshal(last) // it was read from JSON
	}
	text, err := json.Marshal(state)
	if err != nil {
		return fail(err)
	}
	dir, err := h.statesDir()
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	file, err := os.CreateTemp(dir, "new-*") // readable only to the user: it holds the job's secret
	if err != nil {
		return fail(err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, state.Job+".json"))
	}
	if err == nil {
		err = syncDir(dir)
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

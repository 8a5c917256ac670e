package main

import (
	"fmt"
	"slices"
	"strconv"

	"gorun/launcher"
)

const (
	depthVariable = "GORUN_DEPTH"
	// deepest is how many jobs may be within one another. Jobs whose ranks start gorun on their own program would
	// not end.
	deepest = 3
)

// depthOf returns the number of jobs within one another that a launcher begins with its own. Ranks find the number in
// their environment, and so does the launcher that one of them starts.
func depthOf(outer string) (int, error) {
	around, _ := strconv.Atoi(outer) // 0 outside of jobs
	if around < deepest {
		return around + 1, nil
	}
	return 0, &usageError{fmt.Errorf("this gorun was started by a rank of a job, within %d jobs: "+
		"a program whose ranks start gorun on it would never end", around),
		fmt.Sprintf("have ranks start another program than their own; env -u %s gorun … begins anew", depthVariable)}
}

// nested returns the programs of a job within others.
func nested(programs []launcher.Program, depth int) []launcher.Program {
	if depth == 1 {
		return programs // as in the table of variables
	}
	programs = slices.Clone(programs)
	for i := range programs {
		programs[i].Env = append(slices.Clip(programs[i].Env), depthVariable+"="+strconv.Itoa(depth))
	}
	return programs
}

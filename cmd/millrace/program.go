package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/schedule"
)

// useProgram makes the Program in the job's file the job's schedule, under the file's name.
func useProgram(j *job.Job) error {
	if j.Program == "" {
		return nil
	}
	if j.Schedule != "" || j.Plan != "" {
		return badInput(fmt.Errorf("--program %s is a schedule of its own; leave out --schedule and --plan", j.Program))
	}
	text, err := os.ReadFile(j.Program)
	if err != nil {
		return badInput(err)
	}
	source, err := schedule.ReadSource(j.Program, text)
	if err != nil {
		return badInput(err)
	}
	if _, err := source.Check(0); err != nil {
		return badInput(err)
	}
	p := *source.Program
	p.Name = filepath.Base(j.Program)
	if err := schedule.RegisterProgram(&p); err != nil {
		return badInput(err)
	}
	j.Schedule, j.Workers = p.Name, p.Workers
	j.MicroBatches = p.MicroBatches / p.Period
	if j.Weights == "" {
		j.Weights = string(p.Weights)
	}
	return nil
}

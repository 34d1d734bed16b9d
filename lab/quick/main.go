// Quick compares a model's first profile, which takes seconds, with a thorough one.
//
// In: names of models; the millrace program. For each model it measures a quick profile without earlier measurements
// and plans from it. Then it adds measurements until the profile is thorough, and plans from the thorough profile. It
// simulates both plans with the thorough costs. Out, as a table and as JSON: the duration of each profile, the quick
// plan's step as each profile predicts it, and how much slower the quick plan is than the thorough one. Refused: models
// that cannot be measured here.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/plan"
)

func main() {
	program := flag.String("millrace", "bin/millrace", "the program")
	to := flag.String("o", "lab/results/quick.json", "write the figures to this file")
	models := flag.String("models", "gpt,convnet,mlp", "names of models")
	batch := flag.Int("batch", 32, "samples of a step")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *program, strings.Split(*models, ","), *batch, *to); err != nil {
		fmt.Fprintln(os.Stderr, "quick:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, program string, models []string, batch int, to string) error {
	all := bench.Quick{Head: record.Begin("quick", "Quick profiles beside thorough ones")}
	fmt.Println("| model | quick profile | thorough profile | predictions apart | plan behind |")
	fmt.Println("|---|---:|---:|---:|---:|")
	for _, m := range models {
		c, err := compare(ctx, program, m, batch)
		if err != nil {
			return err
		}
		all.Models = append(all.Models, *c)
		fmt.Printf("| %s | %.0f s | %.0f s | %+.1f %% | %.1f %% |\n", c.Model, c.QuickS, c.ThoroughS, 100*c.Off(),
			100*c.Behind())
	}
	all.End()
	return record.Write(to, &all)
}

// compare measures a quick and a thorough profile of a model, and compares their plans.
func compare(ctx context.Context, program, name string, batch int) (*bench.QuickModel, error) {
	dir, remove, err := document.Scratch("millrace-quick-")
	if err != nil {
		return nil, err
	}
	defer remove()
	c := &bench.QuickModel{Model: name, Plan: []string{"--workers", "2", "--batch", fmt.Sprint(batch)}}
	in := func(file string) string { return filepath.Join(dir, file) }
	run := func(args ...string) ([]byte, time.Duration, error) {
		began := time.Now()
		p := exec.CommandContext(ctx, program, args...)
		p.Env = append(os.Environ(), "XDG_CACHE_HOME="+in("cache"))
		out, err := p.Output()
		if ended, is := err.(*exec.ExitError); is {
			err = fmt.Errorf("millrace %s: %w\n%s", strings.Join(args, " "), err, ended.Stderr)
		}
		return out, time.Since(began), err
	}
	planned := func(profile, plan string) error {
		_, _, err := run(append([]string{"plan", "--model", name, "--profile", in(profile), "-o", in(plan)}, c.Plan...)...)
		return err
	}
	_, took, err := run(append([]string{"profile", name, "-o", in("quick.json")}, c.Plan...)...)
	if err != nil {
		return nil, err
	}
	if c.QuickS = took.Seconds(); err == nil {
		err = planned("quick.json", "quick-plan.json")
	}
	if err != nil {
		return nil, err
	}
	_, took, err = run(append([]string{"profile", name, "--thorough", "-o", in("thorough.json")}, c.Plan...)...)
	if c.ThoroughS = took.Seconds(); err == nil {
		err = planned("thorough.json", "thorough-plan.json")
	}
	if err != nil {
		return nil, err
	}
	for file, step := range map[string]*float64{"quick-plan.json": &c.PredictedS, "thorough-plan.json": &c.BestS} {
		p, err := plan.Read(in(file))
		if err != nil {
			return nil, err
		}
		*step = p.Predicted.StepS
	}
	out, _, err := run("simulate", "--model", name, "--plan", in("quick-plan.json"), "--profile", in("thorough.json"),
		"--json")
	if err != nil {
		return nil, err
	}
	var later struct {
		StepS float64 `json:"step_s"`
	}
	err = json.Unmarshal(out, &later)
	c.LaterS = later.StepS
	return c, err
}

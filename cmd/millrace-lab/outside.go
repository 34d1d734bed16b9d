package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/record"
	"github.com/millrace-ml/millrace/report/live"
	"github.com/millrace-ml/millrace/tune/avgpipe"
)

func benchLiveCommand() *cobra.Command {
	var program string
	to := "lab/results/live.json"
	var pairs int
	c := &cobra.Command{
		Use: "live -- TRAIN FLAGS...", Short: "Measure what a page that watches costs a training",
		Long: `Two trainings take turns. Nobody watches the first one. The second one runs with --live, and a client takes
everything that the run's page is sent, like a browser on another machine.`,
		Example: "  millrace-lab bench live -- --model mlp --data digits --steps 2000 --stages 2",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if pairs < 1 {
				return cli.BadInput(fmt.Errorf("--pairs %d; give 1 at least", pairs))
			}
			dir, remove, err := document.Scratch("millrace-live-")
			if err != nil {
				return err
			}
			defer remove()
			f := bench.Watched{Head: record.Begin("live", "A training that a page watches, beside one that none does"),
				Train: args}
			for i := range pairs {
				var p bench.WatchedPair
				for _, watched := range []bool{i%2 == 1, i%2 == 0} {
					stepS, sent, err := trainOnce(c.Context(), program, filepath.Join(dir, fmt.Sprint(i, watched)), args,
						watched)
					if err != nil {
						return err
					}
					if watched {
						p.WatchedS, p.Bytes = stepS, sent
					} else {
						p.AloneS = stepS
					}
				}
				f.Pairs = append(f.Pairs, p)
			}
			if err := f.Count(); err != nil {
				return err
			}
			f.End()
			fmt.Fprintf(c.OutOrStdout(), "| pairs | a watched step takes more (interval) |\n|---:|---|\n"+
				"| %d | %.2f %% (%.2f %% to %.2f %%) |\n", pairs, 100*f.More, 100*f.Interval.Lo, 100*f.Interval.Hi)
			return record.Write(to, &f)
		},
	}
	c.Flags().StringVar(&program, "millrace", "bin/millrace", "the program")
	resultsFlag(c, &to)
	c.Flags().IntVar(&pairs, "pairs", 20, "pairs of trainings")
	return c
}

// trainOnce trains, with or without a live page, and returns the bytes sent to the page and the median step. The median
// leaves out the first tenth of the steps.
func trainOnce(ctx context.Context, program, out string, args []string, watched bool) (stepS float64, sent int64,
	err error) {
	all := append([]string{"train", "--out", out}, args...)
	if watched {
		all = append(all, "--live")
	}
	train := exec.CommandContext(ctx, program, all...)
	var said bytes.Buffer
	train.Stderr = &said
	stdout, err := train.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := train.Start(); err != nil {
		return 0, 0, cli.BadInput(fmt.Errorf("--millrace: %w", err))
	}
	type taking struct {
		bytes int64
		err   error
	}
	taken := make(chan taking, 1)
	first := make([]byte, 256)
	n, _ := stdout.Read(first)
	line, _, _ := strings.Cut(string(first[:n]), "\n")
	switch url, is := strings.CutPrefix(line, "live "); {
	case !watched:
		taken <- taking{}
	case is:
		crash.Go(func() {
			n, err := takeAll(ctx, url+"stream?show="+live.IDOf(out))
			taken <- taking{n, err}
		})
	default:
		taken <- taking{err: fmt.Errorf("train --live says %q first, and not where its page is", line)}
	}
	_, _ = io.Copy(io.Discard, stdout)
	if err := train.Wait(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, said.String())
	}
	text, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		return 0, 0, err
	}
	var steps []float64
	for line := range bytes.Lines(text) {
		var v struct {
			StepS *float64 `json:"step_s"`
		}
		if json.Unmarshal(line, &v) == nil && v.StepS != nil {
			steps = append(steps, *v.StepS)
		}
	}
	if len(steps) < 20 {
		return 0, 0, cli.BadInput(errors.New("a run has fewer than 20 steps; give more --steps"))
	}
	got := <-taken
	return stats.Median(steps[len(steps)/10:]), got.bytes, got.err
}

// takeAll reads a stream until its server has gone, and returns the number of bytes.
func takeAll(ctx context.Context, url string) (sent int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	sent, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK || sent == 0 {
		return 0, fmt.Errorf("%s: %s, %d bytes, %v", url, answer.Status, sent, err)
	}
	return sent, nil // an error is ignored, because the stream ends when the run does
}

func benchTunerCommand() *cobra.Command {
	program, output, asJSON := "bin/millrace", "", false
	c := &cobra.Command{
		Use: "tuner -- TUNE FLAGS...", Short: "AvgPipe's tuner beside a traversal that tries every setting",
		Long: `Runs millrace tune --rivals --json with the given flags. It prints how far the predicted steps were from those
of the traversal (which tries every setting), how many settings of the traversal tuning costs, and how far
tune's choice is behind the best setting.`,
		Example: "  millrace-lab bench tuner -- --model convnet --data fashion-mnist --batch 64 --workers 2",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			head := record.Begin("tuner", "AvgPipe's tuner beside a traversal")
			tune := exec.CommandContext(c.Context(), program, append([]string{"tune", "--rivals", "--json"}, args...)...)
			var said bytes.Buffer
			tune.Stderr = &said
			text, err := tune.Output()
			if err != nil {
				return cli.BadInput(fmt.Errorf("%s tune: %w: %s", program, err, said.String()))
			}
			t, err := tunerOf(text)
			if err != nil {
				return cli.BadInput(err)
			}
			t.Head = head
			t.End()
			if err := record.Write(output, t); err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), t)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "| model | steps off: median | worst | cost, settings | choice behind |\n"+
				"|---|---:|---:|---:|---:|\n| %s | %.1f %% | %.1f %% | %.2g | %.1f %% |\n", t.Model, 100*t.StepMedian,
				100*t.StepWorst, t.Cost, 100*t.Behind)
			return err
		},
	}
	c.Flags().StringVar(&program, "millrace", program, "the program")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	resultsFlag(c, &output)
	return c
}

// tunerOf reads the output of tune --rivals --json. It compares what the tuner chose by simulation with what the
// traversal chose.
func tunerOf(text []byte) (*bench.Tuner, error) {
	var found struct {
		Model string `json:"model"`
		avgpipe.Result
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("bench tuner: what tune says: %w", err)
	}
	t := &bench.Tuner{Model: found.Model}
	for _, cell := range found.Grid {
		if cell.Measured != nil && cell.Simulated != nil {
			t.Settings = append(t.Settings, bench.TunerSetting{MicroBatches: cell.At.MicroBatches,
				Pipelines: cell.At.Pipelines, PredictedS: cell.Simulated.StepS, MeasuredS: cell.Measured.StepS})
		}
	}
	var own, traversed *avgpipe.Choice
	for i := range found.Choices {
		switch c := &found.Choices[i]; c.Method {
		case avgpipe.BySimulator:
			own = c
		case avgpipe.ByTraversal:
			traversed = c
		}
	}
	if own == nil || traversed == nil || traversed.Tried == 0 || len(t.Settings) == 0 {
		return nil, fmt.Errorf("bench tuner: tune has traversed nothing; its flags must not leave the traversal out")
	}
	t.Count()
	each := traversed.TuningS / float64(traversed.Tried) * avgpipe.ProfileBatches / avgpipe.TraversalBatches
	t.Cost = (own.TuningS + own.PredictionS) / each
	t.Behind = own.StepS()/traversed.StepS() - 1
	return t, nil
}

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
	"github.com/millrace-ml/millrace/report/live"
)

// liveFigures is what a run costs more that a page watches.
type liveFigures struct {
	Train    []string       `json:"train"`
	Pairs    []livePair     `json:"pairs"`
	More     float64        `json:"more"` // part of a step that the watched one takes more, in the median
	Interval stats.Interval `json:"interval"`
}

// livePair is the median step of a run that nobody watches and of one that is.
type livePair struct {
	AloneS   float64 `json:"alone_s"`
	WatchedS float64 `json:"watched_s"`
	Bytes    int64   `json:"bytes"` // that the page was sent
}

func benchLiveCommand() *cobra.Command {
	var program, to string
	var pairs int
	c := &cobra.Command{
		Use: "live -- TRAIN FLAGS...", Short: "Measure what a page that watches costs a training",
		Long: `Trainings alternate: one that nobody watches, and one with --live whose run's page a client asks for and
takes all it is sent, as a browser on another machine does.`,
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
			f := liveFigures{Train: args}
			var ratios []float64
			for i := range pairs {
				var p livePair
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
				f.Pairs, ratios = append(f.Pairs, p), append(ratios, p.WatchedS/p.AloneS-1)
			}
			f.More = stats.Median(ratios)
			if len(ratios) >= 6 {
				if f.Interval, err = stats.MedianInterval(ratios, 0.95); err != nil {
					return err
				}
			}
			fmt.Fprintf(c.OutOrStdout(), "| pairs | a watched step takes more (interval) |\n|---:|---|\n"+
				"| %d | %.2f %% (%.2f %% to %.2f %%) |\n", pairs, 100*f.More, 100*f.Interval.Lo, 100*f.Interval.Hi)
			return document.WriteJSON(to, f)
		},
	}
	c.Flags().StringVar(&program, "millrace", "bin/millrace", "the program")
	c.Flags().StringVarP(&to, "output", "o", "lab/results/live.json", "write the figures to this file")
	c.Flags().IntVar(&pairs, "pairs", 20, "pairs of trainings")
	cli.Writes(c, "output")
	return c
}

// trainOnce trains, watched or not, and returns the median step and what a page was sent.
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

// takeAll asks for a stream and takes what it is sent until the server is gone.
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
	return sent, nil // however it ends: the run does
}

package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/lab/bench"
	"github.com/millrace-ml/millrace/lab/slow"
)

// slowFlags is what bench slow takes.
type slowFlags struct {
	rates, models []string
	hosts         []int
	pairs         int
	output        string
	plot          string
	profiles      string
}

func benchSlowCommand() *cobra.Command {
	var names []string
	for _, w := range slow.Workloads {
		names = append(names, w.Name)
	}
	own := slowFlags{rates: []string{"50mbit", "100mbit", "500mbit", "1gbit"}, models: names, hosts: []int{2, 4},
		pairs: bench.LeastRepeats, output: "lab/results/slow.json"}
	c := &cobra.Command{
		Use: "slow", Short: "Compare with data parallelism between hosts whose links are slow",
		Long: `Makes hosts of network namespaces on this machine, which a bridge joins and whose links tc limits in
both directions, and trains in them, in turn:

  millrace, by the plan that it chooses for a cluster file that describes these hosts and links
  millrace, plain data parallelism with overlap
  PyTorch DDP over Gloo, and the same with gradients of micro-batches added up first (no_sync)

All train the same model on the same number of rows a step, with one thread a process, host i on
processor i mod their number. Data are random. Each cell says DDP's all-reduce time over its compute
time, how many times as fast as each rival the chosen plan is with an interval of 95 %, and what
was predicted. Cells go to the file -o as they are measured, in the place of those of the same model,
hosts and rate, so that a campaign can be done in parts. Where hosts share a processor a prediction
is not judged. It ends with 1 where a cell of the file breaks what is promised: an interval wholly below
0.97 of the faster way of DDP, or less than 5 times that for vgg16-quarter at 100 Mbit/s or less.

It takes root, Debian's iproute2, and python3-torch (make setup-pytorch). --plot draws the file's cells
and measures nothing.`,
		Example: "  millrace-lab bench slow\n" +
			"  millrace-lab bench slow --rates 100mbit --hosts 2 --models vgg16-quarter --pairs 6\n" +
			"  millrace-lab bench slow --plot docs/slow.svg",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if own.plot != "" {
				return plotSlow(own)
			}
			return benchSlow(c, own)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&own.rates, "rates", own.rates, "what links are limited to")
	f.IntSliceVar(&own.hosts, "hosts", own.hosts, "how many hosts")
	f.StringSliceVar(&own.models, "models", own.models, "workloads: "+strings.Join(names, ", "))
	f.IntVar(&own.pairs, "pairs", own.pairs, "rounds of a cell, in each of which every rival is visited once")
	f.StringVarP(&own.output, "output", "o", own.output, "file of results")
	f.StringVar(&own.profiles, "profiles", "", "folder that profiles are kept in, and taken from (default: measured)")
	f.StringVar(&own.plot, "plot", "", "draw the file's cells to this SVG file, and measure nothing")
	return c
}

// cellsOf is the cells that the flags ask for, by model, hosts and rate.
func (f slowFlags) cellsOf() (all []slowCell, err error) {
	if f.pairs < bench.LeastRepeats {
		return nil, fmt.Errorf("--pairs %d; give %d at least, for an interval around their median", f.pairs,
			bench.LeastRepeats)
	}
	for _, name := range f.models {
		w, err := slow.FindWorkload(name)
		if err != nil {
			return nil, fmt.Errorf("--models: %w", err)
		}
		for _, hosts := range f.hosts {
			if hosts < 2 || hosts > slow.MostHosts {
				return nil, fmt.Errorf("--hosts %d; there are 2 to %d", hosts, slow.MostHosts)
			}
			for _, text := range f.rates {
				r, err := slow.ParseRate(text)
				if err != nil {
					return nil, fmt.Errorf("--rates: %w", err)
				}
				all = append(all, slowCell{of: w, hosts: hosts, rate: r})
			}
		}
	}
	return all, nil
}

func plotSlow(f slowFlags) error {
	if ext := filepath.Ext(f.plot); ext != ".svg" {
		return cli.BadInput(fmt.Errorf("--plot %s; it is an .svg file", f.plot))
	}
	r, err := slow.Read(f.output)
	if err != nil {
		return cli.BadInput(err)
	}
	if len(r.Cells) == 0 {
		return cli.BadInput(fmt.Errorf("%s has no cells to draw; measure some without --plot", f.output))
	}
	p, err := r.Plot()
	if err != nil {
		return cli.BadInput(err)
	}
	return document.Write(f.plot, p.SVG)
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/content"
	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/report"
	"github.com/millrace-ml/millrace/run/checkpoint"
)

const checkpointHelp = `checkpoint shows what a run has saved. RUN is a run's folder (the one that train --out named), its
folder of checkpoints, or one checkpoint in that folder.

If each host has a folder of its own, a host's checkpoint has the manifest and the files of that host's stages.
The files of other hosts then count as missing. To complete a checkpoint, copy its folders from all hosts into
one.`

func checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "checkpoint", Short: "List, show, verify and export what a run has saved", Long: checkpointHelp,
		Example: `  millrace checkpoint ls runs/gpt
  millrace checkpoint export runs/gpt -o gpt.safetensors`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listCheckpoints(), showCheckpoint(), verifyCheckpoints(), exportCheckpoint())
	return c
}

// inspected returns the checkpoints at a path.
func inspected(path string) ([]checkpoint.Seen, error) {
	if err := ofRun(path); err != nil {
		return nil, err
	}
	all, err := checkpoint.Inspect(path)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	return all, nil
}

// ofRun refuses a path whose content is known to be neither a run nor a checkpoint.
func ofRun(path string) error {
	switch is := content.Of(path); is {
	case content.Unknown, content.Run, content.Checkpoint:
		return nil
	default:
		return cli.BadInput(fmt.Errorf("checkpoint: %s is %v", path, is))
	}
}

// listed is a checkpoint as ls prints it in JSON.
type listed struct {
	Path       string            `json:"path"`
	Steps      int               `json:"steps"`
	Model      string            `json:"model,omitempty"`
	Samples    int64             `json:"samples"`
	Loss       float64           `json:"loss"`
	Bytes      int64             `json:"bytes"`
	Schedule   string            `json:"schedule,omitempty"`
	Stages     int               `json:"stages,omitempty"`
	Workers    int               `json:"workers,omitempty"`
	Hosts      []string          `json:"hosts,omitempty"`
	Files      int               `json:"files"`
	Missing    map[string]string `json:"missing,omitempty"`
	Unreadable string            `json:"unreadable,omitempty"`
}

func listedOf(s checkpoint.Seen) listed {
	l := listed{Path: s.Path, Steps: s.Steps, Missing: s.Missing, Unreadable: s.Wrong}
	if m := s.Manifest; m != nil {
		l.Model, l.Samples, l.Loss, l.Bytes, l.Hosts, l.Files = m.Model, m.Samples, m.Loss, m.Bytes(), m.Hosts(), len(m.Files)
		if p := m.Plan; p != nil {
			l.Schedule, l.Stages, l.Workers = p.Schedule, len(p.Stages), len(p.Devices())
		}
	}
	return l
}

func listCheckpoints() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls RUN", Short: "List the checkpoints of a run",
		Example:           "  millrace checkpoint ls runs/gpt",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Checkpoints),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := inspected(args[0])
			if err != nil {
				return err
			}
			rows := make([]listed, len(all))
			for i, s := range all {
				rows[i] = listedOf(s)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), rows)
			}
			return writeList(c.OutOrStdout(), rows)
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

// writeList prints the table, and the errors of checkpoints that cannot be read.
func writeList(w io.Writer, rows []listed) error {
	err := tableOf(rows).Text(w)
	screen := terminal.Of(w)
	for _, r := range rows {
		if r.Unreadable != "" && err == nil {
			_, err = io.WriteString(w, screen.Wrap("  ", "  ", filepath.Base(r.Path)+": "+r.Unreadable))
		}
	}
	return err
}

func tableOf(rows []listed) *report.Table {
	t := &report.Table{Head: []string{"checkpoint", " steps", " samples", " loss", " size", "model", "plan", " workers",
		"files here"}}
	if slices.ContainsFunc(rows, func(r listed) bool { return r.Hosts != nil }) {
		t.Head = append(t.Head, "hosts")
	}
	for _, r := range rows {
		name := filepath.Base(r.Path)
		if r.Unreadable != "" {
			t.Add(name, terminal.Whole(r.Steps), "", "", "", "", "", "", "unreadable")
			continue
		}
		plan := ""
		if r.Stages > 0 {
			plan = fmt.Sprintf("%s, %s", r.Schedule, terminal.Count(r.Stages, "stage"))
		}
		files := fmt.Sprintf("all %d", r.Files)
		if n := len(r.Missing); n > 0 {
			files = fmt.Sprintf("%d of %d", r.Files-n, r.Files)
		}
		t.Add(name, terminal.Whole(r.Steps), terminal.Whole(r.Samples), terminal.Loss(r.Loss), terminal.Bytes(r.Bytes),
			r.Model, plan, r.Workers, files, strings.Join(r.Hosts, ", "))
	}
	return t
}

// newest returns the last checkpoint at a path. Its manifest must be readable.
func newest(path string) (checkpoint.Seen, error) {
	all, err := inspected(path)
	if err != nil {
		return checkpoint.Seen{}, err
	}
	last := all[len(all)-1]
	if last.Manifest == nil {
		return last, cli.BadInput(fmt.Errorf("checkpoint: %s: %s", last.Path, last.Wrong))
	}
	return last, nil
}

func showCheckpoint() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show RUN", Short: "Show one checkpoint, the newest of a run: plan, optimizer, files",
		Example: "  millrace checkpoint show runs/gpt\n" +
			"  millrace checkpoint show runs/gpt/checkpoints/step-00000200",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Checkpoints),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := newest(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), struct {
					Path     string               `json:"path"`
					Missing  map[string]string    `json:"missing"`
					Manifest *checkpoint.Manifest `json:"manifest"`
				}{s.Path, s.Missing, s.Manifest})
			}
			return describe(c.OutOrStdout(), s)
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

func verifyCheckpoints() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify RUN", Short: "Read every byte of a run's checkpoints and say what is wrong",
		Long: `verify reads every byte of the checkpoints at RUN. It tests checksums, headers, types and shapes. It also tests
that each parameter of the model, and each of its optimizer states, is there exactly once. If anything is wrong,
it ends with 1.`,
		Example:           "  millrace checkpoint verify runs/gpt",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Checkpoints),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := inspected(args[0])
			if err != nil {
				return err
			}
			type verdict struct {
				Path  string   `json:"path"`
				Wrong []string `json:"wrong"`
			}
			verdicts, bad := []verdict{}, 0
			bytes := int64(0)
			for _, s := range all {
				if s.Manifest != nil {
					bytes += s.Manifest.Bytes()
				}
			}
			meter := cli.StartMeter("checkpoint")
			defer meter.Stop()
			meter.Work().Begin(time.Now(), moving("reading "+terminal.Count(len(all), "checkpoint"), bytes))
			for _, s := range all {
				v := verdict{s.Path, append([]string{}, s.Verify()...)}
				if verdicts = append(verdicts, v); len(v.Wrong) > 0 {
					bad++
				}
			}
			meter.Stop()
			if asJSON {
				err = cli.WriteJSON(c.OutOrStdout(), verdicts)
			} else {
				for i, v := range verdicts {
					err = errors.Join(err, judge(c.OutOrStdout(), all[i], v.Wrong))
				}
			}
			if err == nil && bad > 0 {
				err = fmt.Errorf("checkpoint: something is wrong with %d of %s", bad, terminal.Count(len(verdicts), "checkpoint"))
			}
			return err
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

// judge prints what is wrong with a checkpoint, or that it is whole.
func judge(w io.Writer, s checkpoint.Seen, wrong []string) error {
	name := filepath.Base(s.Path)
	if len(wrong) > 0 {
		_, err := fmt.Fprintf(w, "%s  WRONG\n  %s\n", name, strings.Join(wrong, "\n  "))
		return err
	}
	what := terminal.Count(len(s.Manifest.Parameters), "parameter tensor")
	if s.Manifest.Parameters == nil {
		what = "its manifest lists no parameters to compare with"
	}
	_, err := fmt.Fprintf(w, "%s  ok: %s, %s, %s\n", name, terminal.Count(len(s.Manifest.Files), "file"),
		terminal.Bytes(s.Manifest.Bytes()), what)
	return err
}

// moving returns a piece of work for the progress display that reads or writes this many bytes of checkpoints.
func moving(what string, bytes int64) progress.Piece {
	began := checkpoint.Moved()
	return progress.Piece{What: what, Kind: what, Group: what, Cost: float64(bytes),
		Far: func() float64 { return float64(checkpoint.Moved()-began) / float64(max(1, bytes)) }}
}

// firstly calls a function before the first write.
type firstly struct {
	io.Writer
	call func()
}

func first(w io.Writer, call func()) io.Writer { return &firstly{w, sync.OnceFunc(call)} }

func (f *firstly) Write(text []byte) (int, error) {
	f.call()
	return f.Writer.Write(text)
}

func exportCheckpoint() *cobra.Command {
	var output string
	var optimizer bool
	c := &cobra.Command{
		Use: "export RUN -o FILE", Short: "Write a checkpoint's weights as one safetensors file",
		Long: `export writes all parameters and buffers of a checkpoint as one safetensors file. If RUN is a run, this is its
newest checkpoint. The plan of the run does not matter: tensors have the names of layers, or for a PyTorch network
the names in its state_dict, for load_state_dict.

--optimizer-state adds the optimizer's states, as NAME#STATE. If the run had pipelines side by side, the reference
is written; --optimizer-state adds every pipeline, as pipeline-N/NAME.`,
		Example:           "  millrace checkpoint export runs/gpt -o gpt.safetensors",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Checkpoints),
		RunE: func(c *cobra.Command, args []string) error {
			if output == "" {
				return cli.BadInput(errors.New("--out names the file to write; give one, as in -o weights.safetensors"))
			}
			if err := ofRun(args[0]); err != nil {
				return err
			}
			from, err := checkpoint.Open(checkpoint.Folder(args[0]))
			if err != nil {
				return cli.BadInput(err)
			}
			defer from.Close()
			meter := cli.StartMeter("checkpoint")
			defer meter.Stop()
			m := from.Manifest
			written := m.Bytes() // a file with weights only has no optimizer states
			if !optimizer {
				written /= int64(1 + len(m.Optimizer.States()))
			}
			meter.Work().Plan(time.Now(), "export", moving("writing", written))
			meter.Work().Begin(time.Now(), moving("checking", m.Bytes()))
			err = document.Write(output, func(f io.Writer) error {
				begun := first(document.Until(c.Context(), f), func() {
					meter.Work().Begin(time.Now(), moving("writing", written))
				})
				to := bufio.NewWriterSize(begun, 1<<20)
				return errors.Join(from.Export(to, optimizer), to.Flush())
			})
			if meter.Stop(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s from %s\n", output, from.Path)
			return err
		},
	}
	cli.Output(c, &output, "the file to write")
	cli.WritesAs(c, "out", ".safetensors")
	c.Flags().BoolVar(&optimizer, "optimizer-state", false, "write the optimizer's states too")
	cli.Formerly(c, map[string]string{"output": "out", "optimizer": "optimizer-state"})
	return c
}

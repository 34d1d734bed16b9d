package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/engine/torch"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
)

// finding is the result of one of doctor's checks.
type finding struct {
	What   string `json:"what"`
	Value  string `json:"value"`
	OK     bool   `json:"ok"`
	Remedy string `json:"remedy,omitempty"`
}

type findings []finding

// text lists the findings for people. Each begins with "ok", or with "!!" and a remedy below.
func (all findings) text(s terminal.Screen) string {
	widest := 0
	for _, f := range all {
		widest = max(widest, len(f.What))
	}
	hang := strings.Repeat(" ", len("ok  ")+widest+2)
	var b strings.Builder
	for _, f := range all {
		mark := s.Paint(terminal.Green, "ok")
		if !f.OK {
			mark = s.Paint(terminal.Yellow, "!!")
		}
		b.WriteString(s.Wrap(fmt.Sprintf("%s  %-*s  ", mark, widest, f.What), hang, f.Value))
		if f.Remedy != "" {
			b.WriteString(s.Wrap(hang+"-> ", hang+"   ", f.Remedy))
		}
	}
	return b.String()
}

// record is what one of several processes found, as one line of JSON.
type record struct {
	Rank     int      `json:"rank"`
	Host     string   `json:"host"`
	Findings findings `json:"findings"`
}

func doctorCommand() *cobra.Command {
	var build, asJSON, links bool
	var output string
	c := &cobra.Command{
		Use: "doctor", Short: "What this machine has for training, and what to do about the rest",
		Long: `doctor checks whether this machine has what training needs, and says what to do about what is missing.

doctor --links measures only the links between workers: inside a process, between processes of a host, and
between hosts if a launcher has started doctor on several. -o writes a cluster file of these hosts. Give it to
train --cluster, or to plan --cluster together with a --profile that was measured on these hosts.`,
		Example: "  millrace doctor\n  millrace doctor --build   # compile the native library into your cache\n" +
			"  millrace launch -n 2 -- doctor --links -o cluster.yaml",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && !links {
				return cli.BadInput(fmt.Errorf("--out %s is for what --links measures; give both", output))
			}
			if links {
				return doctorLinks(c, output, asJSON)
			}
			if build {
				if err := torch.Build(c.Context(), "", c.ErrOrStderr()); err != nil {
					return cli.BadInput(err) // the user must install what is missing
				}
				if made, err := torch.CachePath(); err == nil {
					fmt.Fprintf(c.ErrOrStderr(), "compiled %s\n", made)
				}
			}
			found := examine()
			if w, err := launch.FromEnv(os.Environ()); asJSON && err == nil && w.Size > 1 {
				of := record{Rank: w.Rank, Host: cmp.Or(w.Host, cli.HostName()), Findings: found}
				return json.NewEncoder(c.OutOrStdout()).Encode(of)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), found)
			}
			_, err := io.WriteString(c.OutOrStdout(), found.text(terminal.Of(c.OutOrStdout())))
			return err
		},
	}
	c.Flags().BoolVar(&build, "build", false, "compile the native library against the installed libtorch")
	cli.JSON(c, &asJSON)
	c.Flags().BoolVar(&links, "links", false, "measure the links between workers instead")
	cli.Output(c, &output, "with --links: write the hosts as a cluster to this file")
	cli.WritesAs(c, "out", ".yaml", ".yml")
	return c
}

func examine() findings {
	own := prepare.Own()
	found := findings{
		{What: "cores", Value: fmt.Sprint(own.Cores()), OK: true},
		{What: "memory", Value: memory(), OK: true},
		launched(os.Environ()),
	}
	e, err := torch.Open()
	if err != nil {
		f := finding{What: "libtorch", Value: err.Error()}
		switch {
		case errors.Is(err, torch.ErrNoCgo):
			f.Remedy = "planning, simulation and reports work; for training build with CGO_ENABLED=1 and a C compiler"
		case errors.Is(err, torch.ErrNotFound):
			f.Remedy = "apt-get install libtorch-dev g++, then: " + cli.Called() + " doctor --build"
		default:
			f.Remedy = "compile it for this machine: " + cli.Called() + " doctor --build; a library that lies nearer is " +
				"taken first"
		}
		return append(found, f)
	}
	i := e.Info()
	blas := i.BLAS
	if i.BLASCore != "" {
		blas += ", kernels " + i.BLASCore
	}
	found = append(found,
		finding{What: "libtorch", Value: fmt.Sprintf("%s, %s", i.Torch, i.Library), OK: true},
		finding{What: "native library", Value: i.Native, OK: true},
		finding{What: "compiled against", Value: i.Against, OK: true},
		finding{What: "CPU kernels", Value: i.Kernels, OK: true},
		finding{What: "BLAS", Value: fmt.Sprintf("%s, %s", blas, i.BLASLibrary), OK: true},
		finding{What: "threads", Value: fmt.Sprintf("%d for an operator by default; millrace gives each worker 1 "+
			"unless told", i.Threads), OK: true},
	)
	for _, line := range i.Advice() {
		found = append(found, finding{What: "speed", Value: line})
	}
	return found
}

// launched returns which launcher has started this process, and the process's place in the run.
func launched(environment []string) finding {
	w, err := launch.FromEnv(environment)
	switch {
	case err != nil:
		return finding{What: "launcher", Value: err.Error(), Remedy: "unset what is wrong, or set " + launch.LauncherVar}
	case w.Note != "":
		return finding{What: "launcher", Value: w.Note, Remedy: "start the processes with srun"}
	case w.Size == 1:
		return finding{What: "launcher", Value: "none: this process is alone", OK: true}
	}
	each := max(1, w.WorkersPerProcess)
	return finding{What: "launcher", OK: true, Value: fmt.Sprintf("%v; %s in all, %d in each process; rank 0 "+
		"is met at %s, token in %v", w, terminal.Count(w.Size*each, "worker"), each, w.Meet(), w.Token)}
}

// memory returns the machine's memory as text.
func memory() string {
	bytes, err := prepare.MemoryBytes()
	if err != nil {
		return "unknown: " + err.Error()
	}
	return fmt.Sprintf("%s, %s available", terminal.Bytes(bytes["MemTotal"]),
		terminal.Bytes(bytes["MemAvailable"]))
}

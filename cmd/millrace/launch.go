package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/start"
)

// launchable are the verbs that processes of a run may be.
var launchable = []string{"train", "doctor"}

// printsAlone says whether rank 0 alone prints what a verb comes to. The arguments are read as the processes read
// them, whose errors are theirs to say.
func printsAlone(args []string) bool {
	c, flags, err := command().Find(args)
	if err == nil {
		err = c.ParseFlags(flags)
	}
	links, _ := c.Flags().GetBool("links") // false where there is none
	return err == nil && (c.Name() != "doctor" || links)
}

// otherHalf is the verb by which launch starts processes on another host.
const otherHalf = "launch-here"

// executableVar is the environment's --executable.
const executableVar = "MILLRACE_EXECUTABLE"

const (
	launchHelp = `launch starts the processes of one run, watches them, and ends with the exit code of the first that
failed. Processes are on this host; --hosts a:4,b:4 names others, each with its number of processes, which your
own ssh reaches without questions. All hosts need the same millrace at the same path, and this folder.

With --restarts all start again after a process was lost, and go on from the last whole checkpoint. Ctrl-C is
handed on, and is the end.`

	launchMore = `Each process finds its rank, where the others are met, and the token of the run in its environment.
What they print stands behind their rank, and their host where there are several, but for records in JSON, which
say it themselves. train and doctor --links print their results on rank 0 alone, as they are.

Processes on this host meet on the loopback. The variables that processes on other hosts need travel inside the ssh
connection, and processes end when it does. Millrace's path there is this one's, or --executable's, or that of
` + executableVar + `. Rank 0 is on the first host, which the others find by its name here, or by
` + launch.MasterAddrVar + `; processes then listen beyond the loopback, for those who know the token.

Where one process fails the others have 15 s to end by themselves; then they are told to stop, and a minute later
killed. With --restarts all start again after a process was lost (exit code 3), killed (137) or told to stop (129,
130, 143), not after any other end; hosts that no longer answer are left out.`
)

// launchFlags are what launch was told.
type launchFlags struct {
	n, restarts, workers     int
	hosts, token, executable string
}

func launchCommand() *cobra.Command {
	var f launchFlags
	c := &cobra.Command{
		Use: "launch -n PROCESSES [--hosts a:2,b:2] -- VERB FLAGS", Long: launchHelp,
		Short: "Start the processes of one run, on this host or on several",
		Example: `  millrace launch -n 2 -- train --model gpt --data FILE.txt --batch 32 --out runs/gpt
  millrace launch --hosts a:2,b:2 --restarts 3 -- train job.yaml
  millrace launch -n 2 -- doctor`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.spec(c.Flags().Changed("processes"), c.Flags().Changed("workers-per-process"))
			if err == nil && c.Context().Err() == nil {
				s.Args, err = launchedVerb(c, args)
			}
			if err != nil {
				return cli.BadInput(err)
			}
			if line, err := json.Marshal(os.Args); err == nil {
				s.Env = append(without(s.Env, launch.CommandVar), fmt.Sprint(launch.CommandVar, "=", string(line)))
			}
			if cli.IsTerminal(os.Stdout) {
				s.Env = append(s.Env, fmt.Sprint(terminal.ColumnsVar, "=", terminal.Of(os.Stdout).Columns))
			}
			return launchAll(c, s)
		},
	}
	cli.WithoutRank(c)
	cli.More(c, launchMore)
	c.Flags().IntVarP(&f.n, "processes", "n", 1, "processes to start")
	c.Flags().StringVar(&f.hosts, "hosts", "", "hosts and their processes, as a:2,b:2 (default: this one)")
	c.Flags().IntVar(&f.restarts, "restarts", 0, "most times to start again")
	cli.Formerly(c, map[string]string{"token-file": "run-token-file"})
	c.Flags().IntVar(&f.workers, "workers-per-process", 1, "workers that each process has")
	c.Flags().StringVar(&f.token, "run-token-file", "", "file with the run's token (default: made up)")
	c.Flags().StringVar(&f.executable, "executable", "", "path of millrace on all hosts (default: this one's)")
	return c
}

// spec is what the flags ask for.
func (f *launchFlags) spec(counted, staffed bool) (*start.Spec, error) {
	if f.n < 1 || f.n > start.MaxProcesses {
		return nil, fmt.Errorf("--processes is %d; give 1 to %d", f.n, start.MaxProcesses)
	}
	if f.restarts < 0 || f.restarts > start.MaxProcesses {
		return nil, fmt.Errorf("--restarts is %d; give 0 to %d", f.restarts, start.MaxProcesses)
	}
	if f.workers < 1 || f.workers > launch.MaxSize {
		return nil, fmt.Errorf("--workers-per-process is %d; give 1 to %d", f.workers, launch.MaxSize)
	}
	s := &start.Spec{Hosts: []start.Host{{Processes: f.n}}, Restarts: f.restarts, Env: os.Environ(),
		Remote: []string{otherHalf}}
	if f.hosts != "" {
		hosts, err := start.ParseHosts(f.hosts)
		if err != nil {
			return nil, fmt.Errorf("--hosts: %w", err)
		}
		n := 0
		for _, h := range hosts {
			n += h.Processes
		}
		if counted && n != f.n {
			return nil, fmt.Errorf("--processes is %d, and --hosts %s has %d; leave --processes out, or make them equal", f.n,
				f.hosts, n)
		}
		s.Hosts = hosts
	}
	var err error
	if s.Program, err = os.Executable(); err != nil {
		return nil, err
	}
	if told := cmp.Or(f.executable, os.Getenv(executableVar)); told != "" {
		if !filepath.IsAbs(told) {
			return nil, fmt.Errorf("--executable is %s; give a whole path, since it is that of all hosts", told)
		}
		s.Program = told
	}
	if staffed {
		s.Env = append(without(s.Env, launch.WorkersVar), fmt.Sprint(launch.WorkersVar, "=", f.workers))
	}
	if f.token == "" {
		return s, nil
	}
	path, err := filepath.Abs(f.token)
	if err == nil {
		_, err = launch.Token{File: path}.Read(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("--run-token-file: %w", err)
	}
	s.Env = append(without(s.Env, launch.TokenVar, launch.TokenFileVar), launch.TokenFileVar+"="+path)
	return s, nil
}

// without is an environment without variables.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(env, func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(names, name)
	})
}

// launchedVerb is what stands behind --.
func launchedVerb(c *cobra.Command, args []string) ([]string, error) {
	switch at := c.ArgsLenAtDash(); {
	case at != 0 || len(args) == 0:
		return nil, errors.New("behind -- stands the verb to start, as in: millrace launch -n 2 -- doctor")
	case args[0] == "millrace":
		return nil, fmt.Errorf("behind -- stands the verb alone; leave %q out", args[0])
	}
	if !slices.Contains(launchable, args[0]) {
		return nil, fmt.Errorf("%q is not started in several processes; train and doctor are", args[0])
	}
	return args, nil
}

// launchAll starts the processes and waits for them.
func launchAll(c *cobra.Command, s *start.Spec) error {
	if c.Context().Err() != nil {
		return context.Cause(c.Context())
	}
	if err := cli.LeavesToOthers(c); err != nil {
		return err
	}
	s.Stdout, s.Stderr, s.Bare = c.OutOrStdout(), c.ErrOrStderr(), printsAlone(s.Args)
	s.Again = func(number int, after start.Outcome) {
		cli.Say(fmt.Sprintf("launch: %s; start %d of at most %d", after.How, number+1, s.Restarts+1), "start", number+1)
	}
	began := time.Now()
	o, err := start.Run(c.Context(), *s)
	if err != nil {
		return cli.BadInput(fmt.Errorf("launch: %w", err))
	}
	var stopped *cli.Stopped
	switch {
	case o.Code == 0:
		return nil
	case errors.As(context.Cause(c.Context()), &stopped) && launch.Retry(o.Code):
		return stopped
	}
	return cli.Exit(o.Code, fmt.Errorf("launch: %s, after %s", o.How, terminal.Duration(time.Since(began).Seconds())))
}

// launchHereCommand is launch's other half, on another host.
func launchHereCommand() *cobra.Command {
	return &cobra.Command{
		Use: otherHalf, Short: "Start processes here as launch on another host says on standard input", Hidden: true,
		Example: "  ssh HOST millrace " + otherHalf, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.LeavesToOthers(c); err != nil {
				return err
			}
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a launcher that is gone is no reason to leave processes
			return start.Serve(c.Context(), os.Stdin, os.Stdout)
		},
	}
}

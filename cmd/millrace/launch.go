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
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/start"
)

// launchable lists the verbs that can run in several processes.
var launchable = []string{"train", "doctor"}

// otherHalf is the hidden verb with which launch starts processes on another host.
const otherHalf = "launch-here"

// executableVar is the environment variable with the default of --executable.
const executableVar = "MILLRACE_EXECUTABLE"

const (
	launchHelp = `launch starts the processes of one run, watches them, and ends with the exit code of the process that failed first.
The processes run on this host, or on the hosts that --hosts names: a:4,b:4 means four processes on each of a and b.
Your own ssh must reach these hosts without asking anything. All hosts need the same millrace at the same path, and
this folder.

With --restarts, all processes start again after one was lost, and continue from the last complete checkpoint. Ctrl-C
stops all processes and ends the run.`

	launchMore = `Each process finds its rank, the address of rank 0 and the token of the run in its environment. Every line that a
process prints begins with its rank, and on several hosts also with its host. Records in JSON have both as fields. Only
rank 0 prints the results of train and doctor --links, and without its rank.

Processes on this host connect over the loopback interface. On other hosts, the variables that processes need are sent
through the ssh connection, and the processes end when it ends. The path of millrace there is this program's path, unless
--executable or ` + executableVar + ` gives another. Rank 0 is on the first host. The other hosts find it by the name
that the host has here, or at ` + launch.MasterAddrVar + `. With --hosts, processes listen beyond the loopback interface; only those who know
the token can join.

If a process fails, the others have 15 s to end by themselves. Then they are told to stop, and a minute later they are
killed. With --restarts, all processes start again after one was lost (exit code 3), killed (137) or told to stop (129,
130, 143). After any other end they do not. Hosts that no longer answer are left out.`
)

// launchFlags are the values of launch's flags.
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
			s, err := f.spec(c.Flags().Changed)
			if err == nil {
				s.Args, err = launchedVerb(c, args)
			}
			if own, _ := os.Executable(); err == nil && s.Program == own {
				err = checkFlags(args) // wrong flags are refused here once, not by every process
			}
			if err != nil {
				return cli.BadInput(err)
			}
			if line, err := json.Marshal(os.Args); err == nil {
				s.Env = with(s.Env, launch.CommandVar, string(line))
			}
			if cli.IsTerminal(os.Stdout) {
				s.Env = with(s.Env, terminal.ColumnsVar, fmt.Sprint(terminal.Of(os.Stdout).Columns))
			}
			return launchAll(c, s)
		},
	}
	cli.WithoutRank(c)
	cli.More(c, launchMore)
	c.Flags().IntVarP(&f.n, "processes", "n", 1, "number of processes")
	c.Flags().StringVar(&f.hosts, "hosts", "", "hosts with their numbers of processes, like a:2,b:2 (default: this host)")
	c.Flags().IntVar(&f.restarts, "restarts", 0, "how often all processes may start again")
	cli.Formerly(c, map[string]string{"token-file": "run-token-file"})
	c.Flags().IntVar(&f.workers, "workers-per-process", 1, "workers of each process")
	c.Flags().StringVar(&f.token, "run-token-file", "", "file with the run's token (default: a random token)")
	c.Flags().StringVar(&f.executable, "executable", "", "path of millrace on all hosts (default: this program's)")
	return c
}

// spec checks the flags and returns the Spec they ask for, without the verb. The function `given` reports whether a
// flag was given.
func (f *launchFlags) spec(given func(name string) bool) (*start.Spec, error) {
	for _, flag := range []struct {
		name            string
		is, least, most int
	}{
		{"processes", f.n, 1, start.MaxProcesses},
		{"restarts", f.restarts, 0, start.MaxProcesses},
		{"workers-per-process", f.workers, 1, launch.MaxSize},
	} {
		if flag.is < flag.least || flag.is > flag.most {
			return nil, fmt.Errorf("--%s is %d; give %d to %d", flag.name, flag.is, flag.least, flag.most)
		}
	}
	s := &start.Spec{Restarts: f.restarts, Env: os.Environ(), Remote: []string{otherHalf}}
	var err error
	if s.Hosts, err = f.startOn(given("processes")); err != nil {
		return nil, err
	}
	if s.Program, err = f.program(); err != nil {
		return nil, err
	}
	if given("workers-per-process") {
		s.Env = with(s.Env, launch.WorkersVar, fmt.Sprint(f.workers))
	}
	if f.token == "" {
		return s, nil
	}
	path, err := filepath.Abs(f.token)
	if err == nil {
		_, err = launch.Token{File: path}.Read(nil) // an unusable token is refused here once, not by every process
	}
	if err != nil {
		return nil, fmt.Errorf("--run-token-file: %w", err)
	}
	s.Env = with(without(s.Env, launch.TokenVar), launch.TokenFileVar, path)
	return s, nil
}

// startOn returns the hosts with their numbers of processes. `counted` means that --processes was given; its value must
// then agree.
func (f *launchFlags) startOn(counted bool) ([]start.Host, error) {
	if f.hosts == "" {
		return []start.Host{{Processes: f.n}}, nil
	}
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
	return hosts, nil
}

// program returns the path of millrace, which is the same on all hosts.
func (f *launchFlags) program() (string, error) {
	given := cmp.Or(f.executable, os.Getenv(executableVar))
	switch {
	case given == "":
		return os.Executable()
	case !filepath.IsAbs(given):
		return "", fmt.Errorf("--executable is %s; give a whole path, since it is that of all hosts", given)
	}
	return given, nil
}

// with sets a variable of an environment, whose lines are NAME=value.
func with(env []string, name, value string) []string {
	return append(without(env, name), name+"="+value)
}

// without removes a variable from an environment.
func without(env []string, name string) []string {
	return slices.DeleteFunc(env, func(line string) bool { return strings.HasPrefix(line, name+"=") })
}

// launchedVerb checks and returns the arguments after --: the verb to start and its flags.
func launchedVerb(c *cobra.Command, args []string) ([]string, error) {
	switch at := c.ArgsLenAtDash(); {
	case at != 0 || len(args) == 0:
		return nil, errors.New("give the verb to start after --, as in: millrace launch -n 2 -- doctor")
	case args[0] == "millrace":
		return nil, fmt.Errorf("give the verb alone after --; leave %q out", args[0])
	case !slices.Contains(launchable, args[0]):
		return nil, fmt.Errorf("%q is not started in several processes; %s are", args[0], strings.Join(launchable, " and "))
	}
	return args, nil
}

// checkFlags refuses flags that the verb does not have, and values that are not of the flag's type.
func checkFlags(args []string) error {
	c, flags, err := command().Find(args)
	if err == nil {
		err = c.ParseFlags(flags)
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	return c.FlagErrorFunc()(c, err)
}

// launchAll starts the processes, waits for them, and returns the error of the process that failed first. After a
// signal it returns an error that the run was stopped, unless a process failed for another reason.
func launchAll(c *cobra.Command, s *start.Spec) error {
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

// printsAlone reports whether only rank 0 prints the verb's result. The lines then need no rank. It returns false for
// invalid arguments. They are possible here if the processes run another program, which refuses them.
func printsAlone(args []string) bool {
	c, flags, err := command().Find(args)
	if err == nil {
		err = c.ParseFlags(flags)
	}
	links, _ := c.Flags().GetBool("links") // false if the verb has no such flag
	return err == nil && (c.Name() != "doctor" || links)
}

// launchHereCommand returns the verb that launch runs on another host over ssh.
func launchHereCommand() *cobra.Command {
	return &cobra.Command{
		Use: otherHalf, Short: "Start processes here as launch on another host says on standard input", Hidden: true,
		Example: "  ssh HOST millrace " + otherHalf, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.LeavesToOthers(c); err != nil {
				return err
			}
			// If the launcher has gone, Serve ends the processes; SIGPIPE would end this process before that.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			return start.Serve(c.Context(), os.Stdin, os.Stdout)
		},
	}
}

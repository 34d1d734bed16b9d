package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/start"
)

// launchable are the verbs that processes of a run may be.
var launchable = []string{"train", "doctor"}

const launchHelp = `launch starts the processes of one run on this host, watches them, and ends with the exit code of
the first that failed. Each finds its rank, where the others are met, and the token of the run in its
environment.

Where one fails the others have 15 s to end by themselves; then they are told to stop, and a minute later killed.
A signal is handed on. With --restarts all start again after a process was lost or killed, not after an error.`

func launchCommand() *cobra.Command {
	var n, restarts int
	var token string
	c := &cobra.Command{
		Use: "launch -n PROCESSES -- VERB FLAGS", Short: "Start several processes of one run on this host", Long: launchHelp,
		Example: "  millrace launch -n 2 -- doctor",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := launchSpec(n, restarts, token)
			if err == nil && c.Context().Err() == nil {
				s.Args, err = launchedVerb(c, args)
			}
			if err != nil {
				return cli.BadInput(err)
			}
			return launchAll(c, s)
		},
	}
	c.Flags().IntVarP(&n, "processes", "n", 1, "processes to start")
	c.Flags().IntVar(&restarts, "restarts", 0, "most times to start again")
	c.Flags().StringVar(&token, "token-file", "", "file with the run's token; made up where none is given")
	return c
}

// launchSpec is what the flags ask for.
func launchSpec(n, restarts int, token string) (*start.Spec, error) {
	const most = 4096
	if n < 1 || n > most {
		return nil, fmt.Errorf("--processes is %d; give 1 to %d", n, most)
	}
	if restarts < 0 || restarts > most {
		return nil, fmt.Errorf("--restarts is %d; give 0 to %d", restarts, most)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &start.Spec{Program: self, Processes: n, Restarts: restarts, Env: os.Environ()}
	if token == "" {
		return s, nil
	}
	path, err := filepath.Abs(token)
	if err == nil {
		_, err = launch.Token{File: path}.Read(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	s.Env = slices.DeleteFunc(s.Env, func(line string) bool {
		return strings.HasPrefix(line, launch.TokenVar+"=") || strings.HasPrefix(line, launch.TokenFileVar+"=")
	})
	s.Env = append(s.Env, launch.TokenFileVar+"="+path)
	return s, nil
}

// launchedVerb is what stands behind --.
func launchedVerb(c *cobra.Command, args []string) ([]string, error) {
	switch at := c.ArgsLenAtDash(); {
	case at != 0 || len(args) == 0:
		return nil, fmt.Errorf("behind -- stands the verb to start, as in: %s", strings.TrimSpace(c.Example))
	case args[0] == "millrace":
		return nil, fmt.Errorf("behind -- stands the verb alone; leave %q out", args[0])
	case !slices.Contains(launchable, args[0]):
		return nil, fmt.Errorf("%q is not started in several processes; %s are", args[0], strings.Join(launchable, " and "))
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
	s.Stdout, s.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	s.Again = func(number int, after start.Outcome) {
		fmt.Fprintf(c.ErrOrStderr(), "launch: %s; start %d of at most %d\n", after.How, number+1, s.Restarts+1)
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
	return cli.Exit(o.Code, fmt.Errorf("launch: %s, after %v", o.How, time.Since(began).Round(time.Millisecond)))
}

// Command millrace trains deep neural networks on pipelines that it plans itself. Its
// verbs are the rooms: flags and wiring only.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/names"
)

// Exit codes.
const (
	exitFailed   = 1
	exitBadInput = 2
)

// exitError carries an exit code up to main.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// badInput marks an error as the user's to mend: exit code 2.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitBadInput, err}
}

func main() { os.Exit(execute(os.Args[1:])) }

// execute is main without the exit: 0 done, 1 failed, 2 bad usage or input, 129, 130 or 143
// stopped by SIGHUP, SIGINT or SIGTERM.
func execute(args []string) int { return executeAs(command(), args) }

func executeAs(root *cobra.Command, args []string) int {
	crash.Handle(dieOf(args))
	ctx, signals := hearSignals()
	root.SetArgs(args)
	screen := names.Screen(os.Stdout, isTerminal(os.Stdout))
	defer screen.Close()
	root.SetOut(screen)
	code := signals.code(crash.Guard(func() error { return root.ExecuteContext(ctx) }), args)
	crash.Settle()
	return code
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Pipeline-parallel training: profile, plan, check, simulate, train, report",
		Long: `millrace profiles a model, plans how to spread it over workers, proves and
simulates that plan, trains with it, and shows what happened.

  millrace train --model convnet --data fashion-mnist --batch 128 --steps 500

does all of it. Each verb does one part.

Training runs in one process on the CPU cores of this machine; planning and simulation also work for
clusters that a file describes.

Exit codes: 0 all done; 1 failed; 2 bad usage or bad input; 129, 130, 143 stopped by SIGHUP, SIGINT,
SIGTERM.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return badInput(fmt.Errorf("%w; see %s -h", err, c.CommandPath()))
	})
	root.AddCommand(doctorCommand(), profileCommand(), planCommand(), scheduleCommand(), simulateCommand(),
		tuneCommand(), trainCommand(), reportCommand(), benchCommand(), reproduceCommand(), importCommand(), exportCommand())
	argumentsAreInput(root)
	root.PersistentPreRunE = checkOutputs
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return badInput(fmt.Errorf("there is no verb %q; see millrace -h", args[0]))
		}
		return nil
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return root
}

// argumentsAreInput makes wrong arguments of every verb below c the user's to mend.
func argumentsAreInput(c *cobra.Command) {
	for _, verb := range c.Commands() {
		if args := verb.Args; args != nil {
			verb.Args = func(c *cobra.Command, given []string) error { return badInput(args(c, given)) }
		}
		argumentsAreInput(verb)
	}
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

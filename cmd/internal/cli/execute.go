package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/internal/names"
)

// NewRoot makes a program from verbs. `groups` describes flags by their names, for help and for completion in shells.
func NewRoot(root *cobra.Command, groups []Group, verbs ...*cobra.Command) *cobra.Command {
	root.Version, root.SilenceErrors, root.SilenceUsage = Version(), true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return BadInput(plainly(c, err))
	})
	cobra.EnableCommandSorting = false // help lists the verbs in the order given
	root.AddCommand(verbs...)
	addCompletion(root)
	argumentsAreInput(root)
	addLog(root)
	describe(root, groups)
	addHelp(root)
	root.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := setLog(c); err != nil {
			return err
		}
		return checkOutputs(c, args)
	}
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return BadInput(noVerb(root, args[0]))
		}
		return nil
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return root
}

// plainly rewrites an error about a flag for users. The text says that the flag does not exist, or which values it
// takes. To any other error it adds only a reference to -h.
func plainly(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	see := "see " + c.CommandPath() + " -h"
	switch {
	case errors.As(err, &unknown):
		return noFlag(c, unknown)
	case errors.As(err, &bare):
		return fmt.Errorf("--%s has no value: give %s; %s", bare.GetFlag().Name, noted(bare.GetFlag(), takes), see)
	case !errors.As(err, &invalid):
		return fmt.Errorf("%w; %s", err, see)
	}
	takes := map[string]string{
		"bool": "true or false", "int": "a whole number", "uint64": "a whole number from 0 on", "float64": "a number",
		"duration": "a time, like 90s or 5m", "intSlice": "whole numbers, like 2,1", "float64Slice": "numbers, like 2,1",
	}[invalid.GetFlag().Value.Type()]
	if takes == "" {
		return fmt.Errorf("%w; %s", err, see)
	}
	if errors.Is(err, strconv.ErrRange) {
		takes += " that fits into 64 bits"
	}
	return fmt.Errorf("--%s is %q; give %s; %s", invalid.GetFlag().Name, invalid.GetValue(), takes, see)
}

// ExecuteAs runs a program and returns its exit code. 0: done; 1: failed; 2: bad usage or input; 3: another process was
// lost; 129, 130 or 143: stopped by SIGHUP, SIGINT or SIGTERM. 143 is also the code if another process was told to
// stop.
func ExecuteAs(root *cobra.Command, args []string) int {
	startLog(root.Name())
	crash.Handle(dieOf(append([]string{root.Name()}, args...)))
	ctx, signals := hearSignals()
	root.SetArgs(args)
	screen := names.Screen(os.Stdout, IsTerminal(os.Stdout))
	defer screen.Close()
	root.SetOut(screen)
	code := signals.code(crash.Guard(func() error { return root.ExecuteContext(ctx) }),
		append([]string{root.Name()}, args...))
	crash.Settle()
	return code
}

// Version returns the program's version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

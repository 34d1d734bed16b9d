// Command millrace trains deep neural networks on pipelines that it plans itself. Its verbs are only flags and
// wiring; the work is in other packages.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/listing"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/planning"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/training"
	"github.com/millrace-ml/millrace/cmd/millrace/internal/tuning"
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs the program and returns its exit code. 0: done; 1: failed; 2: bad usage or input; 3: another process was
// lost; 129, 130 or 143: stopped by SIGHUP, SIGINT or SIGTERM. 143 is also the code if another process was told to
// stop.
func execute(args []string) int { return cli.ExecuteAs(command(), args) }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "millrace",
		Short: "Pipeline-parallel training: profile, plan, check, simulate, train, report",
		Long: `millrace profiles a model, plans how to spread it over workers, proves and
simulates that plan, trains with it, and shows what happened.

  millrace train --model convnet --data fashion-mnist --batch 128 --steps 500

does all of it. Each of the other verbs does one part.

Training runs on CPU cores: in one process on this machine, or in several processes on one host or many
(millrace launch, or a launcher that train knows). Planning and simulation also work for clusters that a
file describes.

Exit codes: 0 all done; 1 failed; 2 bad usage or bad input; 3 another process of the run was lost; 129, 130,
143 stopped by SIGHUP, SIGINT, SIGTERM.`,
	}
	verbs := []*cobra.Command{launchHereCommand(), movedCommand("bench"), movedCommand("reproduce"),
		prepare.MeasureCommand()}
	in := func(id, title string, of ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, verb := range of {
			verb.GroupID = id
		}
		verbs = append(verbs, of...)
	}
	in("start", "Start here", doctorCommand(), training.TrainCommand(), reportCommand())
	in("plan", "Plan", profileCommand(), planning.PlanCommand(), simulateCommand(), tuning.TuneCommand(),
		scheduleCommand(), planning.CalibrateCommand())
	in("train", "Train in several processes", launchCommand(), manifestCommand())
	in("look", "Look", serveCommand(), listing.ModelCommand(), listing.ClusterCommand(), dataCommand(),
		checkpointCommand())
	in("exchange", "Exchange", importCommand(), exportCommand())
	return cli.NewRoot(root, words.Groups(), verbs...)
}

// movedCommand returns a hidden verb that says that the verb is in millrace-lab.
func movedCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: "Is a verb of millrace-lab", Hidden: true, DisableFlagParsing: true,
		Example: "  millrace-lab " + name,
		RunE: func(*cobra.Command, []string) error {
			return cli.BadInput(fmt.Errorf("%s is a verb of millrace-lab; see: millrace-lab %s -h", name, name))
		},
	}
}

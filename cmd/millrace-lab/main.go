// Command millrace-lab runs experiments with millrace: benchmarks, and the papers' tables and figures.
//
// It contains only flags and wiring. The packages of lab do the measuring and counting.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/words"
)

func main() { os.Exit(cli.ExecuteAs(labCommand(), os.Args[1:])) }

// labCommand returns the root command of the experiments.
func labCommand() *cobra.Command {
	return cli.NewRoot(&cobra.Command{
		Use:   "millrace-lab",
		Short: "Experiments with millrace: benchmarks, the papers' tables and figures",
		Long: `millrace-lab measures how fast and how exact millrace is on this machine, and prints the papers' tables and
figures beside millrace's.

  millrace-lab bench prediction --model gpt --workers 2 --splits 20

Exit codes: 0 all done; 1 failed; 2 bad usage or bad input; 129, 130, 143 stopped by SIGHUP, SIGINT, SIGTERM.`,
	}, words.Groups(), benchCommand(), reproduceCommand(), papersCommand(), versusCommand(), splitsCommand(),
		processesCommand(), resultsCommand(), runCommand(), defaultsCommand(), roomsCommand(), benchmarksCommand(),
		docsCommand(), prepare.MeasureCommand(), sessionCommand(), playerCommand())
}

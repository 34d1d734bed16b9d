// Command millrace-lab runs experiments with millrace: benchmarks, and the papers' tables and figures.
//
// It holds flags and wiring; what is measured and counted is in the packages of lab.
package main

import (
	"os"

	"github.com/millrace-ml/millrace/cmd/internal/cli"
)

func main() { os.Exit(cli.ExecuteAs(labCommand(), os.Args[1:])) }

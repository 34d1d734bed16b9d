// Command faults kills or cuts off processes of distributed trainings, and reports the consequences.
//
// In: the program bin/millrace with the native library. It must run as root, because each process has a host of its
// own, which is a network namespace. Out: a line for each try, a table, and a file of results if asked for. The exit
// code is 0 if everything went well, 1 if something did not, and 2 for wrong usage. Refused: a machine on which no
// namespaces can be made, and a millrace that cannot train.
//
// A try starts a training of three processes, waits until a random moment, and loses one process in one of these ways:
//
//	killed    a follower is killed
//	stopped   a follower is stopped, and continues when the others have ended
//	cut       the link of a host is pulled
//	half-open all that a host sends, and all that is sent to it, is lost
//	leader    rank 0 is killed
//	leader-stopped  rank 0 is stopped, and continues when the others have ended
//	native    a replica is killed while Gloo sums the replicas' gradients
//
// Then the other processes must end within ten seconds with exit code 3. Each of them and error.json must name the lost
// process. A process that was stopped then continues, unless millrace launch has ended it, and must end too. All
// processes are started again with the run's identity, as a launcher does.
//
// A try has at most one variant. In a quarter of the tries, each host has its own folder. In another quarter, two
// processes resume with another plan, as another run; the way native does not have this variant. In another quarter,
// millrace launch --hosts --restarts starts everything, with nsenter in place of ssh, and continues without a host
// whose link is lost. In an eighth of the tries, the process is lost while another one measures.
//
// At the end the weights must equal those of an undisturbed training, bit by bit. There must be no half-written
// checkpoint, no error.json, and no process left in any namespace.
//
// lab/results/faults.json was made with: bin/faults -o lab/results/faults.json
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// campaign holds what all tries share.
type campaign struct {
	millrace, native string
	scratch          string // a folder that is deleted at the end
	keep             bool   // keeps the folders of failed tries
	seed             uint64
	out              io.Writer
}

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute is main without the exit.
func execute(args []string, out, errs io.Writer) int {
	c := campaign{out: out}
	var only, to string
	var tries, one int
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&c.millrace, "millrace", "bin/millrace", "the program")
	flags.StringVar(&c.native, "native", "build/libmillrace_native.so", "its native library")
	flags.StringVar(&only, "only", "", "ways to lose a process, with commas: "+strings.Join(names(), ", "))
	flags.IntVar(&tries, "tries", 10, "tries of each way")
	flags.IntVar(&one, "try", -1, "the only try, by its number")
	flags.Uint64Var(&c.seed, "seed", 1, "of what is drawn at random")
	flags.BoolVar(&c.keep, "keep", false, "keep the folders of tries that went wrong")
	flags.StringVar(&to, "o", "", "file for the results")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ways, err := choose(only)
	if err == nil && (flags.NArg() > 0 || tries < 1 || one >= tries) {
		err = fmt.Errorf("faults: takes no arguments but flags, and at least 1 try")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err == nil {
		err = c.begin()
	}
	if err == nil {
		defer func() {
			if !c.keep {
				os.RemoveAll(c.scratch)
			}
		}()
		err = c.prepare(ctx, ways)
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}
	return c.all(ctx, ways, tries, one, to, errs)
}

// begin makes paths absolute and creates the scratch folder. It returns an error if the program or its native library
// is missing.
func (c *campaign) begin() error {
	for _, path := range []*string{&c.millrace, &c.native} {
		at, err := filepath.Abs(*path)
		if err == nil {
			_, err = os.Stat(at)
		}
		if err != nil {
			return fmt.Errorf("faults: %w; build it first: make build", err)
		}
		*path = at
	}
	var err error
	c.scratch, err = os.MkdirTemp("", "millrace-faults-")
	return err
}

// all makes the tries of these ways, and prints and writes the results.
func (c *campaign) all(ctx context.Context, ways []way, tries, one int, to string, errs io.Writer) int {
	r := results{Version: version, Seed: c.seed, Processes: processes}
	for _, w := range ways {
		sum := summary{Way: w.name, What: w.what}
		for n := range tries {
			if one >= 0 && n != one {
				continue
			}
			began := time.Now()
			t, err := c.try(ctx, w, n)
			if err != nil {
				fmt.Fprintf(errs, "faults: %s, try %d: %v\n", w.name, n, err)
				return 1
			}
			fmt.Fprintf(c.out, "%s, try %d: rank %d %s: ended behind %s; %s; %s in all%s\n", w.name, n, t.victim, t.moment,
				terminal.Duration(t.took.Seconds()), t.again, terminal.Duration(time.Since(began).Seconds()), t.found())
			sum.add(t)
		}
		r.Ways = append(r.Ways, sum)
	}
	r.print(c.out)
	err := ctx.Err()
	if err == nil && to != "" {
		err = r.write(to)
	}
	if err != nil {
		fmt.Fprintln(errs, "faults:", err)
	}
	if err != nil || r.wrong() > 0 {
		return 1
	}
	return 0
}

package runs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/lab/slow"
)

// spread says in how many processes a side trains, and where.
type spread struct {
	processes bool        // one process for each worker; otherwise a single process
	hosts     *slow.Hosts // two hosts, each with half of the processes; nil: millrace launch starts all processes here

	mu   sync.Mutex
	port int // the port at which the processes of the latest run met
}

// firstPort is the port at which the processes of the first run meet, on the first host.
const firstPort = 29600

// workersOf returns the number of workers in a command line of train, or otherwise in the text of a Program.
func workersOf(args []string, program string) (int, error) {
	if at := slices.Index(args, "--workers"); at >= 0 {
		return strconv.Atoi(args[at+1])
	}
	for line := range strings.Lines(program) {
		words := strings.Fields(line)
		if at := slices.Index(words, "workers"); at >= 0 && at+1 < len(words) {
			return strconv.Atoi(words[at+1])
		}
	}
	return 0, errors.New("neither flags nor a Program say how many workers there are")
}

// train runs a command line of train with this many workers, and returns its output.
func (s *side) train(ctx context.Context, workers int, args []string) ([]byte, error) {
	switch {
	case !s.spread.processes:
		return s.millrace(ctx, args...)
	case s.spread.hosts == nil:
		return s.millrace(ctx, concatenate([]string{"launch", "-n", strconv.Itoa(workers), "--"}, args)...)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	s.spread.mu.Lock()
	s.spread.port = max(s.spread.port+1, firstPort)
	port := s.spread.port
	s.spread.mu.Unlock()
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails
	env := append(s.environment(), "MILLRACE_WORLD_SIZE="+strconv.Itoa(workers), "MILLRACE_MASTER_ADDR="+slow.Address(0),
		"MILLRACE_MASTER_PORT="+strconv.Itoa(port), "MILLRACE_TOKEN="+hex.EncodeToString(token))
	ranks := make([]*exec.Cmd, workers)
	said, errs := make([][2]bytes.Buffer, workers), make([]error, workers)
	var all sync.WaitGroup
	for rank := range ranks {
		words := s.spread.hosts.Inside(2*rank/workers, append([]string{s.binary}, args...)...)
		c := child.Command(ctx, words[0], words[1:]...)
		c.Dir, c.Env = s.folder, append(env[:len(env):len(env)], "MILLRACE_RANK="+strconv.Itoa(rank))
		c.Stdout, c.Stderr = &said[rank][0], &said[rank][1]
		ranks[rank] = c
		all.Go(crash.Caught(func() { errs[rank] = c.Run() }))
	}
	all.Wait()
	for rank, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("rank %d of %d: %w: %s", rank, workers, err, lastLine(said[rank][1].String()))
		}
	}
	return said[0][0].Bytes(), nil
}

// environment returns the environment of the side's programs.
func (s *side) environment() []string {
	return append(os.Environ(), "MILLRACE_NATIVE="+s.native, "MILLRACE_CARRIER="+s.carrier, "TMPDIR="+s.folder)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

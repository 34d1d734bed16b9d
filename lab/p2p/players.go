package p2p

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/lab/race"
)

// sources are the players that are compiled for the measurement.
//
//go:embed peers/*
var sources embed.FS

// The ways that are written in Go.
const (
	RawTCP   = "raw TCP"
	Millrace = "millrace"
)

// Player is a way of sending messages, and how its processes are started.
type Player struct {
	Name    string
	Doc     string
	Command race.Command
	Sums    bool // the way can also sum vectors
}

// Players returns all ways that are possible on this machine. `self` is a command that starts a player written in Go,
// if the player's name is added as an argument. Other players are compiled in the folder `dir`. `missing` names the
// ways that are impossible here, each with the reason.
func Players(ctx context.Context, self []string, dir string) (all []Player, missing []string, err error) {
	own := func(name, way, doc string, sums bool) Player {
		args := append(append([]string(nil), self[1:]...), way)
		return Player{name, doc, race.Command{Name: name, Path: self[0], Args: args, Steps: 1}, sums}
	}
	all = []Player{
		own(RawTCP, "raw", "Go's net.Conn, a length in front of each message", false),
		own(Millrace, "millrace", "messages of a wire.Port over wire/tcp with credits; who is told of one sends the next",
			true),
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, nil, fmt.Errorf("p2p: %w", err)
	}
	compile := func(name, compiler string, args ...string) (path string, ok bool) {
		path = filepath.Join(dir, name)
		if _, err := exec.LookPath(compiler); err != nil {
			missing = append(missing, fmt.Sprintf("%s: there is no %s", name, compiler))
			return "", false
		}
		if said, err := child.Command(ctx, compiler, append(args, "-o", path)...).CombinedOutput(); err != nil {
			first, _, _ := strings.Cut(string(said), "\n")
			missing = append(missing, fmt.Sprintf("%s: it does not compile: %s", name, first))
			return "", false
		}
		return path, true
	}
	add := func(name, doc, path string, env []string, args ...string) {
		all = append(all, Player{name, doc, race.Command{Name: name, Path: path, Args: args,
			Env: append(os.Environ(), env...), Steps: 1}, true})
	}
	source := func(name string) string { return filepath.Join(dir, "peers", name) }
	pipe := func(name string) string { return filepath.Join(dir, name+".pipe") }
	if path, ok := compile("gloo", "g++", "-std=c++17", "-O2", source("gloo.cpp"),
		"-I/usr/include/torch/csrc/api/include", "-ltorch_cpu", "-lc10", "-lpthread"); ok {
		add("Gloo", "c10d's send, recv and allreduce of libtorch", path, []string{"OMP_NUM_THREADS=1"},
			filepath.Join(dir, "meeting"))
	}
	if path, ok := compile("openmpi", "mpicc.openmpi", "-O2", source("mpi.c")); ok {
		env := []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
		args := []string{"-n", "2", "--oversubscribe", "--bind-to", "none"}
		add("Open MPI", "its own choice on one host: shared memory", "mpirun.openmpi", env,
			append(args, path, pipe("openmpi"))...)
		add("Open MPI, TCP", "--mca btl tcp,self", "mpirun.openmpi", env,
			append(args, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", path, pipe("openmpi-tcp"))...)
	}
	if path, ok := compile("mpich", "mpicc.mpich", "-O2", source("mpi.c")); ok {
		add("MPICH", "its own choice on one host: shared memory", "mpirun.mpich", nil, "-n", "2", path, pipe("mpich"))
		add("MPICH, TCP", "UCX_TLS=tcp, shared memory off", "mpirun.mpich",
			[]string{"UCX_TLS=tcp", "MPIR_CVAR_NOLOCAL=1"}, "-n", "2", path, pipe("mpich-tcp"))
	}
	return all, missing, nil
}

package slow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/child"
	"github.com/millrace-ml/millrace/lab/race"
)

// MostHosts is the maximal number of hosts. With more, a host's share of a processor would be too small.
const MostHosts = 16

// Rate is the limit of a link, as tc writes it.
type Rate struct {
	Name          string // such as 100mbit
	BitsPerSecond float64
}

// ParseRate reads a rate in tc's units of bits: 50mbit, 1gbit.
func ParseRate(text string) (Rate, error) {
	number, unit := strings.TrimRight(text, "bitkmg"), 0.0
	switch text[len(number):] {
	case "kbit":
		unit = 1e3
	case "mbit":
		unit = 1e6
	case "gbit":
		unit = 1e9
	}
	n, err := strconv.ParseFloat(number, 64)
	r := Rate{Name: text, BitsPerSecond: n * unit}
	if err != nil || !(r.BitsPerSecond >= 1e6 && r.BitsPerSecond <= 1e11) {
		return Rate{}, fmt.Errorf("rate %q; it is a number of kbit, mbit or gbit, from 1mbit to 100gbit", text)
	}
	return r, nil
}

// A link's token bucket lets at most bucketBytes through at once. Further packets wait for at most queueMS
// milliseconds. Packets that would wait longer are dropped, as in a switch.
const (
	bucketBytes = 64 << 10
	queueMS     = 50
)

// frameBytes is the length of an Ethernet frame with 1500 bytes, including its header, as tc counts it. payloadBytes is
// how many of these bytes TCP delivers.
const (
	frameBytes   = 1514
	payloadBytes = 1448
)

// Payload returns how many bytes per second TCP moves over a link.
func (r Rate) Payload() float64 { return r.BitsPerSecond / 8 * payloadBytes / frameBytes }

// Hosts are network namespaces that are connected by a bridge.
type Hosts struct {
	Processors int // of the machine; host i uses processor i mod Processors

	all []*namespace
}

// namespace is a network namespace. The process `holder` keeps it alive until `pipe`, which holder reads, is closed.
type namespace struct {
	holder *exec.Cmd
	pipe   io.Closer
}

// Address returns the IP address of a host. Other machines cannot reach it.
func Address(host int) string { return fmt.Sprintf("10.77.0.%d", host+1) }

// Interface is the name of every host's interface.
const Interface = "eth0"

// Open makes hosts whose links have this rate in each direction. When ctx ends, the processes that keep the hosts alive
// are killed.
func Open(ctx context.Context, hosts, processors int, r Rate) (*Hosts, error) {
	if hosts < 2 || hosts > MostHosts {
		return nil, fmt.Errorf("slow: %d hosts; there are 2 to %d", hosts, MostHosts)
	}
	h := &Hosts{Processors: processors}
	if err := h.open(ctx, hosts, r); err != nil {
		return nil, errors.Join(fmt.Errorf("slow: hosts with links of %s: %w", r.Name, err), h.Close())
	}
	return h, nil
}

func (h *Hosts) open(ctx context.Context, hosts int, r Rate) error {
	for range hosts + 1 {
		n, err := hold(ctx)
		if err != nil {
			return err
		}
		h.all = append(h.all, n)
	}
	bridge := h.bridge() // the bridge's namespace is not one of the hosts
	if err := bridge.run(ctx, "ip link add bridge type bridge", "ip link set bridge up"); err != nil {
		return err
	}
	limit := fmt.Sprintf("root tbf rate %s burst %d latency %dms", r.Name, bucketBytes, queueMS)
	for i, host := range h.all[:hosts] {
		port := portOf(i)
		if err := bridge.run(ctx,
			fmt.Sprintf("ip link add %s type veth peer name %s netns %d", port, Interface, host.holder.Process.Pid),
			fmt.Sprintf("ip link set %s master bridge up", port),
			fmt.Sprintf("tc qdisc add dev %s %s", port, limit)); err != nil {
			return err
		}
		if err := host.run(ctx, "ip link set lo up", fmt.Sprintf("ip addr add %s/24 dev %s", Address(i), Interface),
			fmt.Sprintf("ip link set %s up", Interface), fmt.Sprintf("tc qdisc add dev %s %s", Interface, limit)); err != nil {
			return err
		}
	}
	return nil
}

// hold makes a namespace, and returns when it exists.
func hold(ctx context.Context) (*namespace, error) {
	n := &namespace{holder: child.Command(ctx, "unshare", "--net", "sh", "-c", "echo there; exec cat >/dev/null")}
	var words strings.Builder
	n.holder.Stderr = &words
	in, err := n.holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := n.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.holder.Start(); err != nil {
		return nil, err
	}
	n.pipe = in
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		err = n.close()
		return nil, fmt.Errorf("a network namespace cannot be made, which takes root: %w: %s", err,
			strings.TrimSpace(words.String()))
	}
	return n, nil
}

// run runs commands in a namespace. No word of a command may have a space in it.
func (n *namespace) run(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		in := n.inside(strings.Fields(c)...)
		if out, err := child.Command(ctx, in[0], in[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s (Debian's iproute2 and util-linux have the programs)", c, err,
				strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// inside returns a command line that runs another command line in the namespace.
func (n *namespace) inside(words ...string) []string {
	return append([]string{"nsenter", "--net", "--target", strconv.Itoa(n.holder.Process.Pid), "--"}, words...)
}

func (n *namespace) close() error {
	err := n.pipe.Close()
	_ = n.holder.Wait() // waits even if the context has killed the process
	return err
}

// Close removes the hosts. What was started in them must have ended.
func (h *Hosts) Close() (err error) {
	for _, n := range h.all {
		err = errors.Join(err, n.close())
	}
	h.all = nil
	return err
}

// Group returns a rival with one process on each of the first hosts, bound to the host's processor. The process on host
// i runs commands[i].
func (h *Hosts) Group(commands []race.Command) race.Command {
	for i, c := range commands {
		in := h.all[i].inside("taskset", "--cpu-list", strconv.Itoa(i%h.Processors), c.Path)
		c.Path, c.Args = in[0], append(in[1:], c.Args...)
		commands[i] = c
	}
	first := commands[0]
	first.Beside = commands[1:]
	return first
}

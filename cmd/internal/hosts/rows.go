package hosts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/progress"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/measure/links"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// Row is the measurement of one link over one carrier.
type Row struct {
	Level   string `json:"level"`
	Carrier string `json:"carrier"`
	Streams int    `json:"connections"` // in each direction
	Between string `json:"between"`
	links.Link
}

// These are the names of carriers.
const (
	memory             = "memory"
	plainly, encrypted = "tcp", "tcp with TLS"
)

var carriers = []string{plainly, encrypted}

// These are the names of the levels of links.
const (
	inProcess    = "in a process"
	insideHost   = "inside a host"
	betweenHosts = "between hosts"
)

// OutermostFirst returns rows in the order in which levels are shown.
func OutermostFirst(rows []Row) []Row {
	rows = slices.Clone(rows)
	order := []string{betweenHosts, insideHost, inProcess}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return slices.Index(order, a.Level) - slices.Index(order, b.Level)
	})
	return rows
}

// Everything measures the link of every level, one after another: inside a process over memory, elsewhere over TCP with
// and without TLS. Without other processes, it measures TCP between two ends on this host. The result `used` holds the
// links that a run would use. Progress is reported to `work`.
func (c *Crew) Everything(s *Survey, work *progress.Work) (rows []Row, used Links, err error) {
	l, err := inside(c.ctx, func() ([]wire.Carrier, error) { return wire.InProcess(2) })
	if err != nil {
		return nil, used, err
	}
	rows = append(rows, Row{inProcess, memory, 1, "two workers of " + c.name(0), l})
	used.Process = linkOf(l)
	used.Host, used.Network = used.Process, used.Process // for levels that are not measured, which join no workers
	host, network := s.Levels()
	levels := []struct {
		name    string
		pair    [2]int
		streams []int
		into    *cluster.Link
	}{{insideHost, host, []int{1}, &used.Host}, {betweenHosts, network, []int{1, manyStreams}, &used.Network}}
	if network[0] < 0 {
		levels = levels[:1]
	}
	if host[0] < 0 && c.party != nil {
		levels = levels[1:]
	}
	var left []progress.Piece
	for _, level := range levels {
		for _, carrier := range carriers {
			for _, streams := range level.streams {
				left = append(left, piece(level.name, carrier, streams))
			}
		}
	}
	work.Plan(time.Now(), "links", left...)
	defer func() { work.End(time.Now()) }()
	for _, level := range levels {
		alone := level.pair[0] < 0
		for _, carrier := range carriers {
			first := len(rows)
			for _, streams := range level.streams {
				work.Begin(time.Now(), piece(level.name, carrier, streams))
				row := Row{Level: level.name, Carrier: carrier, Streams: streams}
				if alone {
					row.Between = "two ends on this host"
					row.Link, err = inside(c.ctx, func() ([]wire.Carrier, error) { return loopback(c.ctx, carrier == encrypted) })
				} else {
					row.Between = fmt.Sprintf("%s and %s", c.name(level.pair[0]), c.name(level.pair[1]))
					row.Link, err = c.Measure(level.pair, carrier == encrypted, streams)
				}
				if err != nil {
					return rows, used, fmt.Errorf("the link %s by %s: %w", level.name, carrier, err)
				}
				rows = append(rows, row)
				runs := c.party != nil && c.party.Encrypted() == (carrier == encrypted)
				if runs && (streams == 1 || filling(rows[first].Link, row.Link) == streams) {
					*level.into = linkOf(row.Link)
				}
			}
		}
	}
	return rows, used, nil
}

// piece describes one measurement of a link for the progress display.
func piece(level, carrier string, streams int) progress.Piece {
	what := fmt.Sprintf("%s, %s, %s", level, carrier, terminal.Count(streams, "connection"))
	return progress.Piece{What: what, Kind: what, Group: "links", Cost: 1}
}

// linkOf returns a measured link as a cluster file describes it.
func linkOf(l links.Link) cluster.Link {
	return cluster.Link{LatencyS: l.LatencyS, BandwidthBytesPerSecond: slowest(l)}.Rounded()
}

// inside measures the link between two workers of this process.
func inside(ctx context.Context, open func() ([]wire.Carrier, error)) (l links.Link, err error) {
	all, err := open()
	if err != nil {
		return l, err
	}
	err = each(ctx, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			l, err = links.Lead(ctx, all[0], 1)
			return err
		}
		return links.Answer(ctx, all[1], 0)
	})
	return l, errors.Join(err, all[0].Close(), all[1].Close())
}

// loopback makes the carriers of two workers, each with its own Endpoint.
func loopback(ctx context.Context, encrypted bool) ([]wire.Carrier, error) {
	token := make([]byte, 2*tcp.LeastToken)
	_, _ = rand.Read(token) // rand.Read never fails
	all := make([]wire.Carrier, 2)
	var ends [2]*tcp.Endpoint
	var at []wire.Address
	for i := range ends {
		c := tcp.Config{Token: token, Process: i}
		if encrypted {
			c.TLS = &tcp.TLS{}
		}
		e, err := tcp.Listen(ctx, c)
		if err != nil {
			if i > 0 {
				err = errors.Join(err, ends[0].Close())
			}
			return nil, err
		}
		ends[i], at = e, append(at, e.Address())
	}
	for i, e := range ends {
		of, err := e.Carriers(1, at, []int{i}, 1)
		if err != nil {
			return nil, errors.Join(err, ends[0].Close(), ends[1].Close())
		}
		all[i] = ending{of[i], e}
	}
	return all, nil
}

// ending is a Carrier that closes its Endpoint when it is closed.
type ending struct {
	wire.Carrier
	end *tcp.Endpoint
}

func (e ending) Close() error { return errors.Join(e.Carrier.Close(), e.end.Close()) }

// Described returns the hosts as a cluster file describes them. Each worker gets an equal share of its host's memory,
// rounded down. All workers of a type get the smallest share among them.
func (s *Survey) Described(l Links) (*cluster.Cluster, error) {
	types := map[string]cluster.DeviceType{}
	for _, t := range s.Types(1) {
		var most int64
		for _, rank := range t.Ranks {
			if part := s.Facts[rank].MemoryBytes / int64(s.onHost(rank)); most == 0 || part < most {
				most = part
			}
		}
		const short = 27 // memory is rounded down to a multiple of 2^27 bytes, 1/8 GiB
		types[t.Name] = cluster.DeviceType{MemoryBytes: most >> short << short}
	}
	c, err := s.Cluster(1, types, l)
	if err == nil {
		c.Name = "measured"
	}
	return c, err
}

// onHost returns how many workers are on the host of a process.
func (s *Survey) onHost(rank int) int {
	n := 0
	for r := range s.Hosts {
		if s.Hosts[r].Node == s.Hosts[rank].Node {
			n += s.Workers
		}
	}
	return n
}

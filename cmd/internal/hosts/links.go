package hosts

import (
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/internal/terminal"
	"github.com/millrace-ml/millrace/measure/links"
)

// Measured holds the measured links of two levels. Host is a link inside a host, measured between the processes
// HostRanks. Network is a link between two hosts, measured between the processes BetweenTwo. A link is nil if its level
// has no two processes.
type Measured struct {
	Host, Network         *links.Link
	HostRanks, BetweenTwo [2]int
	Streams               int // connections between two workers; manyStreams if one does not fill the network
}

// manyStreams is the number of connections each way between two workers, if one does not fill the link.
const manyStreams = 4

// fuller is the least ratio of speeds at which several connections are used instead of one. It is above 1 because two
// measurements of one link differ.
const fuller = 1.25

// filling returns how many connections fill a link, from its measurements with one connection and with manyStreams.
func filling(one, many links.Link) int {
	if slowest(many) >= fuller*slowest(one) {
		return manyStreams
	}
	return 1
}

func slowest(l links.Link) float64 { return min(l.ThereBytesPerSecond, l.BackBytesPerSecond) }

// Links measures the link of each level over TCP, with the settings of the run.
func (c *Crew) Links(s *Survey) (*Measured, error) {
	m := &Measured{Streams: 1}
	m.HostRanks, m.BetweenTwo = s.Levels()
	if m.HostRanks[0] >= 0 {
		l, err := c.measure(m.HostRanks, 1)
		if err != nil {
			return nil, err
		}
		m.Host = &l
	}
	if m.BetweenTwo[0] < 0 {
		return m, nil
	}
	one, err := c.measure(m.BetweenTwo, 1)
	if err != nil {
		return nil, err
	}
	many, err := c.measure(m.BetweenTwo, manyStreams)
	if err != nil {
		return nil, err
	}
	m.Network, m.Streams = &one, filling(one, many)
	if m.Streams > 1 {
		m.Network = &many
	}
	return m, nil
}

// measure measures a link as the run will use it.
func (c *Crew) measure(pair [2]int, streams int) (links.Link, error) {
	l, err := c.Measure(pair, c.party.Encrypted(), streams)
	if err != nil {
		err = fmt.Errorf("the link between %s and %s: %w", c.name(pair[0]), c.name(pair[1]), err)
	}
	return l, err
}

// Between returns the links of a cluster's levels. `inside` is the link between workers of one process. A message from
// another process is also passed on inside the receiving process. So the latency of `inside`, and the time of its
// collectives, are added to those of the other levels.
func (m *Measured) Between(inside cluster.Link) Links {
	of := func(l *links.Link) cluster.Link {
		if l == nil {
			return inside // this level joins no workers
		}
		out := cluster.Link{LatencyS: inside.LatencyS + l.LatencyS, BandwidthBytesPerSecond: slowest(*l)}
		if sums := inside.CollectiveBytesPerSecond; sums > 0 {
			out.CollectiveBytesPerSecond = 1 / (1/slowest(*l) + 1/sums)
		}
		return out
	}
	return Links{Process: inside, Host: of(m.Host), Network: of(m.Network)}
}

// typicalBytes is the size of the message with which links are compared.
const typicalBytes = 1 << 20

// unlike is the ratio of transfer times above which Unlike lists a link.
const unlike = 2

// Unlike describes each level whose link takes more than twice or less than half as long as the cluster says.
func (m *Measured) Unlike(s *Survey, c *cluster.Cluster) []string {
	var said []string
	order := s.order()
	for _, level := range m.levels() {
		a, b := slices.Index(order, level.pair[0])*s.Workers, slices.Index(order, level.pair[1])*s.Workers
		if level.l == nil || max(a, b) >= len(c.Devices) {
			continue
		}
		thought, takes := c.TransferS(a, b, typicalBytes), level.l.LatencyS+typicalBytes/slowest(*level.l)
		if takes <= unlike*thought && thought <= unlike*takes {
			continue
		}
		said = append(said, fmt.Sprintf("1 MiB takes %s %s, as measured now, and %s in cluster %s: what is predicted for "+
			"that does not hold here", terminal.Duration(takes), level.what, terminal.Duration(thought), c.Name))
	}
	return said
}

// level is one level of links; l is nil if it was not measured.
type level struct {
	what string
	l    *links.Link
	pair [2]int
}

func (m *Measured) levels() []level {
	return []level{{insideHost, m.Host, m.HostRanks}, {betweenHosts, m.Network, m.BetweenTwo}}
}

// Describe returns the links in words.
func (m *Measured) Describe() string {
	text := ""
	for _, level := range slices.Backward(m.levels()) {
		if level.l != nil {
			text += fmt.Sprintf("link %s: %s, %sB/s there and %sB/s back, between ranks %d and %d\n", level.what,
				terminal.Duration(level.l.LatencyS), terminal.Scaled(level.l.ThereBytesPerSecond),
				terminal.Scaled(level.l.BackBytesPerSecond), level.pair[0], level.pair[1])
		}
	}
	if m.Streams > 1 {
		text += fmt.Sprintf("one connection does not fill the link between hosts: each two workers have %d each way\n",
			m.Streams)
	}
	return text
}

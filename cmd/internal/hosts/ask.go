package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/cmd/internal/prepare"
	"github.com/millrace-ml/millrace/cmd/internal/together"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/launch/setup"
	"github.com/millrace-ml/millrace/measure/links"
	"github.com/millrace-ml/millrace/profile"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/tcp"
)

// These are the questions that rank 0 asks each process, including itself.
const (
	askFacts   = "host facts"
	askEnd     = "end of a link"
	askLink    = "link"
	askProfile = "profile"
)

// endQuestion asks a process to open an Endpoint for measuring a link. The answer is the Endpoint's address.
type endQuestion struct {
	TLS bool `json:"tls"`
}

// linkQuestion asks one end of a link to measure it. The end that leads answers with a links.Link.
type linkQuestion struct {
	Peer    wire.Address `json:"peer"`
	Leads   bool         `json:"leads"`
	Streams int          `json:"streams"` // connections that this end opens
}

// profileQuestion asks for the profile of a host.
type profileQuestion struct {
	Job     string `json:"job"`
	Sizes   []int  `json:"sizes"`
	Workers int    `json:"workers"`
	Cores   int    `json:"cores"`
	Kind    string `json:"kind"` // kind of the host, given the processes that share it
}

// linkWait is the limit for measuring one link. It is long enough for some frames on the slowest link that a run could
// use.
const linkWait = 2 * time.Minute

// Handlers returns the handlers with which a process answers rank 0's questions. Long measurements are announced on
// `log`.
func Handlers(p *together.Party, log io.Writer) map[string]setup.Handler {
	e := &ends{party: p}
	return map[string]setup.Handler{
		askFacts:   func(context.Context, json.RawMessage) (any, error) { return prepare.Own(), nil },
		askEnd:     e.open,
		askLink:    e.measure,
		askProfile: func(ctx context.Context, with json.RawMessage) (any, error) { return measured(ctx, log, with) },
	}
}

// ends holds the Endpoint with which a process measures a link. A process has one such Endpoint at a time.
type ends struct {
	party *together.Party
	end   *tcp.Endpoint
}

func (e *ends) open(ctx context.Context, with json.RawMessage) (any, error) {
	var q endQuestion
	if err := json.Unmarshal(with, &q); err != nil {
		return nil, err
	}
	err := e.close()
	if err == nil {
		e.end, err = e.party.Aside(ctx, q.TLS)
	}
	if err != nil {
		return nil, err
	}
	return e.end.Address(), nil
}

func (e *ends) close() error {
	if e.end == nil {
		return nil
	}
	err := e.end.Close()
	e.end = nil
	return err
}

func (e *ends) measure(ctx context.Context, with json.RawMessage) (any, error) {
	var q linkQuestion
	if err := json.Unmarshal(with, &q); err != nil {
		return nil, err
	}
	if e.end == nil {
		return nil, errors.New("there is no end of a link")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, linkWait,
		fmt.Errorf("the other end has not answered within %v", linkWait))
	defer cancel()
	own, peer := 1, 0
	if q.Leads {
		own, peer = peer, own
	}
	at := make([]wire.Address, 2)
	at[peer] = q.Peer
	all, err := e.end.Carriers(1, at, []int{own}, q.Streams)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	var l links.Link
	if q.Leads {
		l, err = links.Lead(ctx, all[own], peer)
	} else {
		err = links.Answer(ctx, all[own], peer)
	}
	return l, errors.Join(err, all[own].Close(), e.close())
}

// measured returns the profile of this host. It measures only what has not been measured before.
func measured(ctx context.Context, log io.Writer, with json.RawMessage) (*profile.Profile, error) {
	var q profileQuestion
	if err := json.Unmarshal(with, &q); err != nil {
		return nil, err
	}
	j, err := job.Parse(q.Job)
	if err != nil {
		return nil, err
	}
	j.Machine.Workers, j.Machine.Cores = q.Workers, q.Cores
	j.Machine.Cluster, j.Plan.File, j.Plan.Profile = "", "", "" // these belong to the run, not to the host
	m, err := prepare.LoadModel(j)
	if err != nil {
		return nil, err
	}
	return prepare.HostProfile(ctx, log, j, m, prepare.Wanted{Sizes: q.Sizes, Every: true}, q.Kind, false)
}

// Crew holds all processes of a run. Rank 0 asks them questions.
type Crew struct {
	ctx    context.Context
	party  *together.Party
	others *setup.Leader
	own    map[string]setup.Handler
	ask    func(ctx context.Context, rank int, name string, with, answer any) error
}

// NewCrew returns the processes of a Party, led by this one. Without a Party it returns this process only.
func NewCrew(ctx context.Context, p *together.Party, others *setup.Leader, log io.Writer) *Crew {
	c := &Crew{ctx: ctx, party: p, others: others, own: Handlers(p, log)}
	c.ask = c.asked
	return c
}

// name returns the name of a process for errors.
func (c *Crew) name(rank int) string {
	if c.party == nil {
		return "this host"
	}
	return c.party.Name(rank)
}

// asked asks one process, which may be this one. If ctx ends, it does not wait for another process's answer, because
// the caller will dismiss that process.
func (c *Crew) asked(ctx context.Context, rank int, name string, with, answer any) error {
	if rank > 0 {
		said := make(chan error, 1)
		crash.Go(func() { said <- c.others.Ask(rank, name, with, answer) })
		select {
		case err := <-said:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	text, err := json.Marshal(with)
	if err != nil {
		return err
	}
	said, err := c.own[name](ctx, text)
	if err != nil || answer == nil {
		return err
	}
	if text, err = json.Marshal(said); err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// each calls `do` for all i below n at once, under a context that the first error cancels. It returns that error.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first error
	var one sync.Once
	var all sync.WaitGroup
	for i := range n {
		all.Go(crash.Caught(func() {
			if err := do(ctx, i); err != nil {
				one.Do(func() { first = err })
				cancel(err)
			}
		}))
	}
	all.Wait()
	return first
}

// Survey asks all processes what their hosts have. `workers` is the number of workers in each process.
func (c *Crew) Survey(workers int) (*Survey, error) {
	s := &Survey{Workers: workers}
	if c.party == nil {
		own, err := os.Hostname()
		if err != nil {
			own = "localhost"
		}
		s.Hosts = []Host{{Name: own}}
	} else {
		for _, at := range c.party.Places {
			s.Hosts = append(s.Hosts, Host{Name: at.Host, Node: at.Node})
		}
	}
	s.Facts = make([]prepare.Facts, len(s.Hosts))
	return s, each(c.ctx, len(s.Facts), func(ctx context.Context, rank int) error {
		return c.ask(ctx, rank, askFacts, nil, &s.Facts[rank])
	})
}

// Measure measures the link between two processes over TCP, with `streams` connections each way.
func (c *Crew) Measure(pair [2]int, encrypted bool, streams int) (links.Link, error) {
	var at [2]wire.Address
	for i, rank := range pair {
		if err := c.ask(c.ctx, rank, askEnd, endQuestion{encrypted}, &at[i]); err != nil {
			return links.Link{}, err
		}
	}
	var found [2]links.Link
	err := each(c.ctx, 2, func(ctx context.Context, i int) error {
		return c.ask(ctx, pair[i], askLink, linkQuestion{Peer: at[1-i], Leads: i == 0, Streams: streams}, &found[i])
	})
	if err != nil {
		return links.Link{}, err
	}
	return found[0], nil
}

// Profile has one process of each type measure the costs of a job's model, and joins the results. While one process
// measures, the other processes of its host measure on their own processors, because in the run all of them will be
// busy. `called` holds the names of the types in the profile.
func (c *Crew) Profile(s *Survey, types []Type, called []string, j *job.Job, sizes []int) (*profile.Profile, error) {
	text, err := j.Text()
	if err != nil {
		return nil, err
	}
	typeOf := make([]int, len(s.Hosts))
	on := map[int][]int{} // indices of types; the key is the number of the host that measures them
	for i, t := range types {
		for _, rank := range t.Ranks {
			typeOf[rank] = i
		}
		on[s.Hosts[t.Ranks[0]].Node] = append(on[s.Hosts[t.Ranks[0]].Node], i)
	}
	nodes := slices.Sorted(maps.Keys(on))
	parts := make([]profile.Part, len(types))
	err = each(c.ctx, len(nodes), func(ctx context.Context, host int) error {
		for _, i := range on[nodes[host]] {
			if parts[i].Profile != nil {
				continue
			}
			ranks := s.apart(types[i].Ranks[0])
			found := make([]profile.Profile, len(ranks))
			err := each(ctx, len(ranks), func(ctx context.Context, k int) error {
				t := types[typeOf[ranks[k]]]
				return c.ask(ctx, ranks[k], askProfile, profileQuestion{Job: text, Sizes: sizes, Workers: t.Workers,
					Cores: t.Cores, Kind: t.Kind}, &found[k])
			})
			if err != nil {
				return err
			}
			for k, rank := range ranks {
				of := typeOf[rank]
				if types[of].Ranks[0] != rank {
					continue
				}
				p, err := found[k].Renamed(called[of])
				if err != nil {
					return err
				}
				parts[of] = profile.Part{Name: "the profile of " + c.name(rank), Profile: p}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 {
		return parts[0].Profile, nil
	}
	return profile.Join(parts...)
}

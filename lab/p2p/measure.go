package p2p

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/millrace-ml/millrace/internal/stats"
	"github.com/millrace-ml/millrace/lab/race"
	"github.com/millrace-ml/millrace/lab/record"
)

const (
	confidence = 0.95
	mostTurns  = 20_000
)

// Settings says what is measured and how often.
type Settings struct {
	Sizes    []int         // of messages, in bytes
	Sums     []int         // of vectors, in bytes
	Arrives  int           // size of the message that is sent while both processes compute, in bytes
	Computes time.Duration // how long both processes compute during the message of Arrives
	Rounds   int           // number of rounds; each has pairs of visits
	Visit    time.Duration // approximate duration of a visit
}

// Usual returns the settings of the published results.
func Usual() Settings {
	return Settings{Sizes: []int{4 << 10, 64 << 10, 1 << 20, 16 << 20}, Sums: []int{4 << 10, 1 << 20, 16 << 20},
		Arrives: 16 << 20, Computes: 500 * time.Millisecond, Rounds: 20, Visit: 60 * time.Millisecond}
}

// Check refuses settings with too few rounds.
func (s Settings) Check() error {
	if least := stats.Fewest(confidence); s.Rounds < least {
		return fmt.Errorf("p2p: %d rounds; an interval of %v takes %d at least", s.Rounds, confidence, least)
	}
	return nil
}

// bench holds the players during the measurement.
type bench struct {
	Settings
	players []Player
	rivals  []*race.Rival
	counts  map[visit]int
	g       *rand.Rand
}

// visit is a request to a player.
type visit struct {
	player int
	what   string
	bytes  int
}

// Measure measures the players in turn. The first must be raw TCP and the second millrace.
func Measure(ctx context.Context, players []Player, s Settings, log io.Writer) (*Results, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	r := &Results{Head: record.Begin(Kind, "Messages between two processes of one machine"),
		ComputeS: s.Computes.Seconds()}
	var commands []race.Command
	for _, p := range players {
		commands = append(commands, p.Command)
		r.Ways = append(r.Ways, Way{p.Name, p.Doc})
	}
	err := race.Together(ctx, commands, func(rivals []*race.Rival) error {
		b := &bench{Settings: s, players: players, rivals: rivals, counts: map[visit]int{}, g: rand.New(rand.NewPCG(1, 1))}
		for _, size := range s.Sizes {
			fmt.Fprintf(log, "messages of %d bytes\n", size)
			if err := b.messages(ctx, r, size); err != nil {
				return err
			}
		}
		fmt.Fprintf(log, "a message of %d bytes while both compute\n", s.Arrives)
		if err := b.arrivals(ctx, r); err != nil {
			return err
		}
		for _, size := range s.Sums {
			fmt.Fprintf(log, "sums of %d bytes\n", size)
			if err := b.sums(ctx, r, size); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.End()
	return r, r.judge()
}

// ask sends a player a request for `count` repetitions, and returns the seconds of one repetition.
func (b *bench) ask(ctx context.Context, v visit, count int, computeS float64) (float64, error) {
	var a answer
	line := request{What: v.what, Bytes: v.bytes, Count: count, ComputeS: computeS}.line()
	if err := b.rivals[v.player].Ask(ctx, line, &a); err != nil {
		return 0, err
	}
	if a.Seconds <= 0 {
		return 0, fmt.Errorf("p2p: %s says that %q took %g seconds", b.players[v.player].Name, line, a.Seconds)
	}
	return a.Seconds / float64(count), nil
}

// visited repeats a request for about the duration of a visit.
func (b *bench) visited(ctx context.Context, v visit) (float64, error) {
	if b.counts[v] == 0 {
		if _, err := b.ask(ctx, v, 3, 0); err != nil { // this connects the two processes
			return 0, err
		}
		one, err := b.ask(ctx, v, 10, 0)
		if err != nil {
			return 0, err
		}
		b.counts[v] = min(max(int(b.Visit.Seconds()/one), 3), mostTurns)
	}
	return b.ask(ctx, v, b.counts[v], 0)
}

// beside visits the player `first` and each of the players `others` in pairs. The order of `others` changes in each
// round.
func (b *bench) beside(ctx context.Context, what string, bytes int, first int, others []int,
	of map[int]*Times) error {
	for round := range b.Rounds {
		b.g.Shuffle(len(others), func(i, k int) { others[i], others[k] = others[k], others[i] })
		for _, other := range others {
			pair := [2]int{first, other}
			if round%2 == 1 {
				pair = [2]int{other, first}
			}
			took := map[int]float64{}
			for _, player := range pair {
				s, err := b.visited(ctx, visit{player, what, bytes})
				if err != nil {
					return err
				}
				took[player] = s
				of[player].Seconds = append(of[player].Seconds, s)
			}
			of[other].Ratios = append(of[other].Ratios, took[first]/took[other])
		}
	}
	return nil
}

func (b *bench) messages(ctx context.Context, r *Results, size int) error {
	of, others := map[int]*Times{0: {}}, []int(nil)
	for k := 1; k < len(b.players); k++ {
		of[k], others = &Times{}, append(others, k)
	}
	if err := b.beside(ctx, "turns", size, 0, others, of); err != nil {
		return err
	}
	for k := range b.players {
		for i := range of[k].Seconds {
			of[k].Seconds[i] /= 2 // a turn goes there and back
		}
		of[k].Way, of[k].Bytes = b.players[k].Name, size
		r.Messages = append(r.Messages, *of[k])
	}
	return nil
}

// sums compares how fast millrace sums with how fast each other player sums, if the player can sum.
func (b *bench) sums(ctx context.Context, r *Results, size int) error {
	of, others := map[int]*Times{1: {}}, []int(nil)
	for k := 2; k < len(b.players); k++ {
		if b.players[k].Sums {
			of[k], others = &Times{}, append(others, k)
		}
	}
	if err := b.beside(ctx, "sum", size, 1, others, of); err != nil {
		return err
	}
	for k := range b.players {
		if of[k] != nil {
			of[k].Way, of[k].Bytes = b.players[k].Name, size
			r.Sums = append(r.Sums, *of[k])
		}
	}
	return nil
}

// arrivals has each player send a message twice in each round: while both processes compute, and while they do not.
func (b *bench) arrivals(ctx context.Context, r *Results) error {
	for k, p := range b.players {
		a := Arrival{Way: p.Name, Bytes: b.Arrives}
		v := visit{k, "arrive", b.Arrives}
		for round := range b.Rounds + 1 {
			idle, err := b.ask(ctx, v, 1, 0)
			if err != nil {
				return err
			}
			busy, err := b.ask(ctx, v, 1, b.Computes.Seconds())
			if err != nil {
				return err
			}
			if round == 0 {
				continue // the first round is left out, because its memory is new
			}
			a.IdleS, a.BusyS, a.Ratios = append(a.IdleS, idle), append(a.BusyS, busy), append(a.Ratios, busy/idle)
		}
		r.Arrivals = append(r.Arrivals, a)
	}
	return nil
}

package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/internal/crash"
	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/collective"
)

// Summer is a member of a group whose vectors are summed by another library. The library chooses the order, but all
// members must get the same bits.
type Summer interface {
	// Sum replaces vectors of one type by their sums. All members make the same calls, one at a time.
	Sum(vectors [][]byte, dtype engine.DType) error
	// End ends waiting calls with an error. It may be called from any goroutine.
	End(error)
	// Close waits for running calls and frees the group.
	Close() error
}

// Meet makes a Summer together with all other members of its group. exchange sends the bytes `own` to every other
// member, and returns the bytes of those members.
type Meet func(ctx context.Context, rank, size int,
	exchange func(ctx context.Context, own []byte) (others [][]byte, err error)) (Summer, error)

// summers holds the Summers of a process's workers. They are made when first needed.
type summers struct {
	ctx   context.Context // context of the process
	meet  Meet            // nil means no Summers
	moved func()          // records that something has happened
	mu    sync.Mutex
	all   map[*collective.Group]Summer
}

// of returns this member's Summer for group g. All members ask in the same order.
func (s *summers) of(ctx context.Context, g *collective.Group) (Summer, error) {
	s.mu.Lock()
	one := s.all[g]
	s.mu.Unlock()
	if one != nil {
		return one, nil
	}
	one, err := s.meet(ctx, g.Me, len(g.Ranks), func(ctx context.Context, own []byte) ([][]byte, error) {
		all, err := g.Exchange(ctx, own)
		if err != nil {
			return nil, err
		}
		return append(all[:g.Me], all[g.Me+1:]...), nil
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s.ctx, crash.Caught(func() { one.End(context.Cause(s.ctx)) }))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*collective.Group]Summer{}
	}
	s.all[g] = one
	return one, nil
}

// close closes all Summers. Nothing may be in flight.
func (s *summers) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		err = errors.Join(err, one.Close())
	}
	s.all = nil
	return err
}

// pieceBytes is the most bytes that are summed in one call. A long sum over a slow link shows its progress after each
// piece.
const pieceBytes = 8 << 20

// sum sums vectors in pieces. Successive vectors of one type may share a piece.
func (s *summers) sum(ctx context.Context, group *collective.Group, vectors []wire.Buffer) error {
	one, err := s.of(ctx, group)
	for _, p := range piecesOf(vectors, pieceBytes) {
		if err != nil {
			break
		}
		err = one.Sum(p.parts, engine.DTypeNamed(p.dtype.String()))
		s.moved()
	}
	if err == nil {
		return nil
	}
	// After the loss of a member the library may return any error, and may do so before the Link reports which member
	// is lost. So wait for the Link.
	select {
	case <-ctx.Done():
	case <-time.After(toldLost):
	}
	return fmt.Errorf("with workers %v: %w", group.Ranks, err)
}

// toldLost is how long Links may take to report a process whose connections have ended.
const toldLost = 3 * time.Second

// piece is a list of vectors of one type, or parts of vectors.
type piece struct {
	dtype wire.DType
	parts [][]byte
}

// piecesOf divides vectors in order into pieces of at most `most` bytes. `most` is a multiple of all element sizes.
func piecesOf(vectors []wire.Buffer, most int) (all []piece) {
	room := 0
	for _, v := range vectors {
		for data := v.Data; len(data) > 0; {
			if len(all) == 0 || all[len(all)-1].dtype != v.DType || room == 0 {
				all, room = append(all, piece{dtype: v.DType}), most
			}
			n := min(len(data), room)
			last := &all[len(all)-1]
			last.parts = append(last.parts, data[:n])
			data, room = data[n:], room-n
		}
	}
	return all
}

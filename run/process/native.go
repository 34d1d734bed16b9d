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

// Summer is a member of a group whose vectors somebody else's library sums, in an order of its own. Every member
// must be left with the same bits.
type Summer interface {
	// Sum replaces vectors of one type by their sums. All members call alike, one call at a time.
	Sum(vectors [][]byte, dtype engine.DType) error
	// End ends what waits, from any goroutine, with an error.
	End(error)
	// Close waits for it, and frees the group.
	Close() error
}

// Meet makes a Summer, together with all other members of its group. exchange sends every other member this one's bytes
// and returns theirs.
type Meet func(ctx context.Context, rank, size int,
	exchange func(ctx context.Context, own []byte) (others [][]byte, err error)) (Summer, error)

// summers are those of a process's workers, made when first needed.
type summers struct {
	ctx   context.Context // of the process
	meet  Meet            // nil: there are none
	moved func()          // says that something has happened
	mu    sync.Mutex
	all   map[*collective.Group]Summer
}

// of is the member's of a group, whose members all ask at the same place in their lists.
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

// close closes all, when nothing is under way any more.
func (s *summers) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		err = errors.Join(err, one.Close())
	}
	s.all = nil
	return err
}

// pieceBytes is how much is summed at once. That a sum goes on over a slow link shows by its pieces.
const pieceBytes = 8 << 20

// sum sums vectors: pieces of them, those of one type that follow each other at once.
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
	// A member that is lost shows to a library as any error at all, and sooner than to a Link, which tells which it is.
	select {
	case <-ctx.Done():
	case <-time.After(toldLost):
	}
	return fmt.Errorf("with workers %v: %w", group.Ranks, err)
}

// toldLost is how long it may take until Links tell of a process whose connections have ended.
const toldLost = 3 * time.Second

// piece is vectors of one type, or parts of them.
type piece struct {
	dtype wire.DType
	parts [][]byte
}

// piecesOf divides vectors, in their order, into pieces of at most so many bytes, a multiple of all sizes of elements.
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

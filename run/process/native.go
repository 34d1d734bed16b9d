package process

import (
	"context"
	"errors"
	"sync"

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

// Meet makes a Summer, together with all other members of its group. exchange gives what each of the others
// gives.
type Meet func(ctx context.Context, rank, size int,
	exchange func(ctx context.Context, own []byte) (others [][]byte, err error)) (Summer, error)

// summers are those of a process's workers, made when first needed.
type summers struct {
	mu  sync.Mutex
	all map[*collective.Group]Summer
}

// summer is a member's of a group, whose members all ask at the same place in their lists.
func (x *Process) summer(ctx context.Context, g *collective.Group) (Summer, error) {
	x.summers.mu.Lock()
	s := x.summers.all[g]
	x.summers.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := x.job.Meet(ctx, g.Me, len(g.Ranks), func(ctx context.Context, own []byte) ([][]byte, error) {
		all, err := g.Exchange(ctx, own)
		if err != nil {
			return nil, err
		}
		return append(all[:g.Me], all[g.Me+1:]...), nil
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(x.ctx, crash.Caught(func() { s.End(context.Cause(x.ctx)) }))
	x.summers.mu.Lock()
	defer x.summers.mu.Unlock()
	if x.summers.all == nil {
		x.summers.all = map[*collective.Group]Summer{}
	}
	x.summers.all[g] = s
	return s, nil
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

// natively sums vectors, those of one type that follow each other at once.
func natively(s Summer, vectors []wire.Buffer) error {
	for len(vectors) > 0 {
		var some [][]byte
		dtype := vectors[0].DType
		for len(vectors) > 0 && vectors[0].DType == dtype {
			some = append(some, vectors[0].Data)
			vectors = vectors[1:]
		}
		if err := s.Sum(some, engine.DTypeNamed(dtype.String())); err != nil {
			return err
		}
	}
	return nil
}

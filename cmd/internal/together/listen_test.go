package together

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/launch"
	"github.com/millrace-ml/millrace/launch/rendezvous"
)

// A name that nobody knows is an end with who, where and why, and not a wait without end.
func TestANameThatNobodyKnows(t *testing.T) {
	w := &launch.World{Rank: 1, Size: 2, Address: "no.such.invalid", Port: 1, Wait: 700 * time.Millisecond}
	began := time.Now()
	_, err := ownHost(t.Context(), w)
	var refused *rendezvous.Refused
	if !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), "rank 1 finds no way to rank 0 at "+
		"no.such.invalid:1") || !strings.Contains(err.Error(), launch.MasterAddrVar) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A port that is not free yet, as where a stopped process still has it, is waited for.
func TestAPortThatIsNotFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &launch.World{Size: 2, Address: "127.0.0.1", Port: taken.Addr().(*net.TCPAddr).Port, Wait: 700 * time.Millisecond,
		Token: launch.Token{Variable: launch.TokenVar}}
	t.Setenv(launch.TokenVar, "0123456789abcdef")
	_, err = listen(t.Context(), w, nil)
	var refused *rendezvous.Refused
	if !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), fmt.Sprint("rank 0 cannot listen at ",
		w.Meet())) {
		t.Errorf("%v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { taken.Close() })
	w.Wait = time.Minute
	e, err := listen(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// Nobody on another host can mean localhost: processes that meet there listen on the loopback, whatever is known of
// their hosts.
func TestLocalhostIsTheLoopback(t *testing.T) {
	for _, name := range []string{"localhost", "127.0.0.1"} {
		for rank := range 2 {
			w := &launch.World{Rank: rank, Size: 2, LocalSize: launch.Unknown, Nodes: launch.Unknown, Address: name, Port: 9}
			if own, err := ownHost(t.Context(), w); err != nil || !strings.HasPrefix(own, "127.") && own != "::1" {
				t.Errorf("rank %d at %s: %q, %v", rank, name, own, err)
			}
		}
	}
}

package rendezvous_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/millrace-ml/millrace/launch/rendezvous"
)

// Two processes meet, here without a Guard, with different plans.
func Example() {
	hello := func(rank int, plan string) rendezvous.Config {
		return rendezvous.Config{Own: rendezvous.Hello{Rank: rank, Size: 2, Host: "here", PID: 7 + rank,
			Facts: []rendezvous.Fact{{Name: "plan", Value: plan, Must: true}}}}
	}
	for _, plan := range []string{"a1", "b2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return
		}
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			m, err := rendezvous.Join(context.Background(), func(ctx context.Context) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", l.Addr().String())
			}, hello(1, plan))
			if err == nil {
				defer m.Close()
			}
		}()
		m, err := rendezvous.Lead(context.Background(), l, hello(0, "a1"))
		<-joined
		if err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), ", ", ",\n"))
			continue
		}
		fmt.Printf("rank 1 is %d of %d on %s\n", m.Places[1].LocalRank, m.Places[1].LocalSize, m.Places[1].Host)
		m.Close()
	}
	// Output:
	// rank 1 is 1 of 2 on here
	// rendezvous: the processes of the run cannot begin: the plan of rank 1 (process 8 on host here) is b2,
	// that of rank 0 (process 7 on host here) is a1
}

package wire_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/wire"
	"github.com/millrace-ml/millrace/wire/blocking"
	"github.com/millrace-ml/millrace/wire/pipe"
	"github.com/millrace-ml/millrace/wire/shape"
	"github.com/millrace-ml/millrace/wire/wiretest"
)

func TestInProcessIsACarrier(t *testing.T) { wiretest.Conforms(t, wire.InProcess) }

// TestSplitIsACarrier: Split works with several workers in one process, with any carrier between processes.
func TestSplitIsACarrier(t *testing.T) {
	for _, c := range []struct {
		name      string
		far       wiretest.Maker
		processes []int
	}{{"pipe", pipe.New, []int{0, 1, 1, 0}}, {"blocking", blocking.New, []int{0, 0, 1, 2}}} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) { return wiretest.Split(c.far, c.processes[:n]) })
		})
	}
}

func TestShapedIsACarrier(t *testing.T) {
	wiretest.Conforms(t, func(n int) ([]wire.Carrier, error) {
		all, err := wire.InProcess(n)
		if err != nil {
			return nil, err
		}
		return shape.New(all, func(from, to int) shape.Link {
			return shape.Link{Latency: time.Duration(50*(1+from)) * time.Microsecond, BytesPerSecond: 1e9}
		})
	})
}

// TestCarriersOfAnotherMakingAreStrangers: carriers that were not made together do not connect, even if another process
// has made its carriers by the same steps.
func TestCarriersOfAnotherMakingAreStrangers(t *testing.T) {
	const child, says = "MILLRACE_TEST_WIRE_ADDRESS", "address "
	all, err := wire.InProcess(2)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(child) != "" {
		fmt.Println(says + string(all[0].Address().Data))
		return
	}
	seen := map[string]bool{}
	for range 2 {
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), child+"=yes")
		said, err := command.CombinedOutput()
		_, data, found := strings.Cut(string(said), says)
		if err != nil || !found {
			t.Fatalf("%v: %s", err, said)
		}
		data, _, _ = strings.Cut(data, "\n")
		if seen[data] {
			t.Errorf("two processes have carriers at %q", data)
		}
		seen[data] = true
		other := all[1].Address()
		other.Data = []byte(data)
		if err := all[0].Connect(1, other); err == nil || !strings.Contains(err.Error(), "not of this process") {
			t.Errorf("the carrier at %q of another process is taken: %v", data, err)
		}
	}
}

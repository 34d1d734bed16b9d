package training

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/internal/document"
)

// The run does not wait for a report that takes too long, and such a report leaves no file. A quick report is complete.
func TestReportsEndInTime(t *testing.T) {
	for name, c := range map[string]struct{ takes, most time.Duration }{
		"page": {0, time.Minute}, "long": {time.Minute, 200 * time.Millisecond},
	} {
		dir, begun, over := t.TempDir(), make(chan struct{}), make(chan error, 1)
		end := make(chan struct{})
		began := time.Now()
		inTime(c.most, func() {
			over <- document.Write(filepath.Join(dir, name), func(f io.Writer) error {
				close(begun)
				if c.takes > 0 {
					<-end
				}
				_, err := io.WriteString(f, "whole")
				return err
			})
		})
		took := time.Since(began)
		<-begun
		close(end)
		err := <-over
		left, unread := os.ReadDir(dir)
		if whole := c.takes == 0; unread != nil || took > 30*time.Second || (err == nil) != whole ||
			len(left) != map[bool]int{true: 1}[whole] {
			t.Errorf("%s: behind %v %v, and %v is there", name, took, err, left)
		}
	}
}

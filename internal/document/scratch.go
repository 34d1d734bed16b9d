package document

import (
	"os"
	"sync"
)

// scratch are the folders for temporary files that there are. Whoever ends the process keeps it locked.
var scratch = struct {
	sync.Mutex
	folders map[string]bool
}{folders: map[string]bool{}}

// Scratch makes a folder for temporary files under the system's. Whoever asked for it calls remove; where the
// process ends before that, Abandon does.
func Scratch(prefix string) (dir string, remove func(), err error) {
	scratch.Lock()
	defer scratch.Unlock()
	if dir, err = os.MkdirTemp("", prefix); err != nil {
		return "", nil, err
	}
	scratch.folders[dir] = true
	return dir, func() {
		scratch.Lock()
		defer scratch.Unlock()
		_ = os.RemoveAll(dir)
		delete(scratch.folders, dir)
	}, nil
}

// removeAttempts is how often a folder is removed that somebody may still be writing into.
const removeAttempts = 5

// abandonScratch removes every folder for temporary files; none is made after it.
func abandonScratch() {
	scratch.Lock()
	for dir := range scratch.folders {
		for range removeAttempts {
			if os.RemoveAll(dir) == nil {
				break
			}
		}
	}
}

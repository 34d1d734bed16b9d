package tcp

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/millrace-ml/millrace/wire/tcp/memory"
)

// farewell is how long a connection is held up by saying that it ends.
const farewell = 100 * time.Millisecond

// Conn is a connection whose other end has proved that it knows the token. Whoever has it closes it.
type Conn struct {
	net.Conn     // encrypted, where it is
	From     int // of one that was accepted: the process that has dialled
	raw      net.Conn
	e        *Endpoint
	proof    memory.Proof // whoever has dialled lends memory as long as it has this in its own

	mu    sync.Mutex
	cause error // why it was cut
}

// Read reads. Its error says why the Endpoint has cut the connection, where it has.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.why(err)
}

// Write writes, with errors as Read has them.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.why(err)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.e.forget(c)
	return c.Conn.Close()
}

// offers says that this process lends its memory, where whoever has it at the other end may be of this host.
func (c *Conn) offers() {
	here, _ := c.LocalAddr().(*net.TCPAddr)
	there, _ := c.RemoteAddr().(*net.TCPAddr)
	if here == nil || there == nil || !here.IP.Equal(there.IP) {
		return
	}
	loan, ok := memory.Lends(&c.proof)
	if !ok {
		c.e.unread(errors.New("this process's is read for no other"))
		return
	}
	_, _ = c.Write(appendPrefix(nil, kindOffer, offer(loan))) // where it fails, so does what follows
}

// why is the cause of an error.
func (c *Conn) why(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// blame says why what follows fails.
func (c *Conn) blame(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = err
	}
}

// cut closes the connection at once, with nothing more said.
func (c *Conn) cut(err error) {
	c.blame(err)
	c.e.forget(c)
	c.raw.Close()
}

// leave closes the connection in good order. Nobody else writes to it.
func (c *Conn) leave() {
	_ = c.SetWriteDeadline(time.Now().Add(farewell))
	_, _ = c.Conn.Write(appendPrefix(nil, kindLeave, chunk{}))
	c.e.forget(c)
	c.raw.Close()
}

// Package tcp carries messages between processes, on one host or many, over TCP.
//
// An Endpoint is a process's: one listener, through which all others reach it. It makes the carriers of the
// process's workers, and gives out connections for what is not tensors, Control and Files, which
// bear bytes as whoever has them likes.
//
// In: frames in host memory, and the addresses of other Endpoints. Out: the same bytes in the memory that
// their receiver posted; errors that name the worker, its address and why. Refused, logged and survived:
// whoever does not know the token, shows no certificate that is asked for, is of another run or session, says
// anything else than a hello or says it slowly, repeats what another said, or comes as a second of a kind. A
// frame that is damaged, longer than the receive posted for it, or not the one that is due ends everything
// with its sender.
//
// Nothing listens beyond the loopback unless Config.Address says so. Without TLS the bytes themselves can be
// read and changed by whoever sits on the way; the token cannot be read, and no connection can be made
// without it.
//
// # Connections
//
// A directed pair of workers has a connection of its own, or several, streams, where one does not fill the link:
// as many as Endpoint.Carriers is told. The sender dials when it first sends. What is short goes at once where
// nothing is in front of it, as far as the kernel takes it without waiting. All else waits at its sender in the
// order in which it was posted, for a goroutine that writes it, so that neither end computes on its account.
// Credits go in front of all else; those that come up while a worker is told of a message wait that long, to go
// with what it answers. A frame goes in chunks of at most chunkBytes, and every stream that has nothing to do
// takes the next one.
//
// All numbers are little-endian. A chunk begins with prefixBytes:
//
//	 0  "MW", kind 1, 0
//	 4  number of the chunk in its frame, 32 bits
//	 8  tag of the frame, 64 bits (wire.TagOf)
//	16  bytes of the frame, 64 bits
//	24  0, 32 bits
//	28  CRC-32C of the 28 bytes above
//
// Its length follows: all chunks of a frame but the last have chunkBytes. A prefix of kind 2 and zeros says,
// in either direction, that the worker has left in good order.
//
// A chunk is read straight into the receive posted for its frame. Where there is none yet, the connection is
// not read on until there is, and the sender waits: what lies with a receiver is what it has posted, and two
// buffers of the kernel. It follows that receives of one edge are posted without waiting for frames of
// another. Every stream has its chunks in the order of the frames, so that the oldest unfinished frame can
// always go on. Receives end in the order of their edge.
//
// # Memory
//
// Within a host a long frame need not travel. Whoever dials offers to lend memory, where both ends have one
// address: a prefix of kind 3 with its process, host and the place of a proof (package memory), which both
// ends know from their handshake and nobody else, and which is wiped when the sender ends. A receiver that can
// read it says so once, kind 4 and zeros. From then on a frame of some length is one prefix of kind 5, with
// the place of its bytes for the number of a chunk (the lower half) and for the zeros in front of the
// checksum (the upper half). The receiver copies the bytes into the receive posted for it and answers with
// kind 6 and the tag. Until then the memory is the carrier's, or until the carrier ends all with the receiver,
// which then finds the proof wiped and throws away what it has read. So it is with TLS, too: what is copied
// within the host is on no network. Where the kernel refuses, the receiver never says kind 4, and all frames
// travel. Where it refuses later on, or there is nothing at the place that was said, the receiver answers with
// kind 7 and the tag instead, and the sender lends nothing any more: what has come back to it travels over one
// more connection, since those that there are may not be read on before the receiver has it. So memory that
// cannot be read is never why a run fails.
//
// # Handshake
//
// Whoever dials says a hello: magic, version, what the connection is for, who it is, the run, and 32 random
// bytes. The listener answers with 32 of its own. The dialler proves that it knows the token, by an
// HMAC-SHA256 with it over both and over the TLS channel, and the listener proves the same. The token itself
// never travels, and what was recorded is of no use, since the random bytes are others each time. All of it has
// a deadline of some seconds, and of more the more of a session's there may be at once; and a listener never has
// more than a set number of unfinished ones: the oldest goes.
//
// With TLS (1.3) both prove it over that very channel. So a certificate of the Endpoint's own making is
// enough: whoever sits between has another channel with each. Certificates of a site's own are held against its
// authorities besides, with their dates and their use, but not against a name or an address: launchers hand out
// addresses that nobody knows when certificates are made, and which of the authorities' own is at the other end is
// what the token proves. So nobody gets in who lacks either, and one certificate may serve all processes.
//
// # Whoever is lost
//
// A connection that breaks says little about why, and a process that has died is known by its control
// connection. So where a connection ends without good order, everything with its worker ends only after a
// moment in which Fail may say more; where nothing is acknowledged for some seconds (a cable, a host, a
// firewall), at once, and always within ten. The error is a wire.PeerError. A process that was stopped, but
// whose host answers, is for heartbeats. A worker that has left in good order is not lost: what is posted
// stays, until Fail or Close.
//
// # Sessions
//
// All processes make their carriers with the same number, a greater one each time. A connection for carriers
// to come waits for them; one for carriers that are closed is refused, which its dialler takes for good
// order.
//
// # What whoever drives an Endpoint must do
//
//  1. Give all processes of a run the same token and Run, another Run for every start of it, and TLS alike.
//  2. Tell every process the address of every other (Endpoint.Address), over Control for example.
//  3. Close the carriers before the Endpoint, and call their Fail when a process is lost.
package tcp

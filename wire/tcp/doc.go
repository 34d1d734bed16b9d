// Package tcp carries messages between processes, on one host or many, over TCP.
//
// An Endpoint is a process's listener, through which all other processes reach it. It makes the carriers of the
// process's workers. It also gives out connections for other purposes, Control and Files, which carry any bytes.
//
// In: frames in host memory, and the addresses of other Endpoints. Out: the same bytes in the memory that their
// receiver posted; errors that name the worker, its address and the reason. A dialler is refused, and logged, if it
// does not know the token, shows no certificate although one is required, or is of another run or session. The same
// holds if it sends anything but a hello, sends it too slowly, replays another's hello, or makes a connection that
// exists already. A frame that is damaged, of another length than its receive, or not the one that is due ends
// everything with its sender.
//
// An Endpoint listens only on the loopback unless Config.Address names another address. Without TLS, anybody on the
// network path can read and change the bytes. The token cannot be read even then, and no connection can be made without
// it.
//
// # Connections
//
// A directed pair of workers has its own connections, called streams: as many as Endpoint.Carriers is given, since one
// may not fill the link. The sender dials when it first sends. Without TLS, a short frame is written without delay if
// no other frame waits, as far as the kernel takes it without blocking. All other frames wait in a queue, in the order
// of posting, for a goroutine that writes them, so that posting never delays a worker. Credits are written before all
// other frames. Credits that arise while a worker is told of a message wait until the worker has been told, since they
// can then travel with its answer. A frame is cut into chunks of at most chunkBytes. Short frames go over the first
// stream, and an idle stream takes the next chunk of a long one.
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
// The chunk's bytes follow. All chunks of a frame except the last have chunkBytes. A prefix of kind 2 with zeros says,
// in either direction, that the worker has closed its carrier: it leaves in good order and is not lost.
//
// A chunk is read directly into the receive posted for its frame. If none is posted yet, the connection is not read
// until one is, and the sender waits. So a receiver holds only the buffers it has posted and two buffers of the kernel.
// This is why receives of one edge must be posted without waiting for frames of another. Every stream carries its
// chunks in the order of the frames, so that the oldest unfinished frame can always go on. Receives of an edge end in
// their order.
//
// # Memory
//
// Within a host a long frame need not be sent as bytes. If both ends have the same address, the dialler offers to lend
// memory. The offer is a prefix of kind 3 with the dialler's process and host and the address of a proof (package
// memory). Only the two ends know the proof, from their handshake, and the sender wipes it when it ends. A receiver
// that can read the proof answers once, with kind 4 and zeros. Once all streams have the answer, a long frame is one
// prefix of kind 5. It has the address of the frame's bytes: the lower half in place of the chunk number, the upper
// half in place of the zeros before the checksum. The receiver copies the bytes into the receive posted for the frame
// and answers with kind 6 and the tag. Until then the memory belongs to the carrier. If the carrier ends everything
// with the receiver earlier, the receiver finds the proof wiped and throws away what it has read. All this works the
// same with TLS, since bytes copied within a host are on no network. If the kernel does not let the receiver read, it
// never sends kind 4, and all frames travel as bytes. If a later read fails, the receiver answers with kind 7 and the
// tag instead, and the sender lends nothing from then on. The frame that came back travels over an additional
// connection, since the existing ones may not be read further before the receiver has that frame. So unreadable memory
// never makes a run fail.
//
// # Handshake
//
// The dialler sends a hello: magic, version, the purpose of the connection, its own number, the run, and 32 random
// bytes. The listener answers with 32 random bytes of its own. The dialler proves that it knows the token by an
// HMAC-SHA256, keyed with the token, over both values and the TLS channel. The listener proves the same. The token
// itself never travels, and a recorded handshake is useless since the random bytes differ each time. The handshake has
// a deadline of some seconds, and of more if a session has many connections. A listener has a limited number of
// unfinished handshakes; if there are too many, the oldest is closed.
//
// With TLS (1.3) both ends bind their proof to that TLS channel. So a certificate that the Endpoint makes itself is
// enough: an attacker in the middle has a different channel with each end. A site's own certificates are also checked
// against its authorities, with their dates and their use, but not against a name or an address. Launchers assign
// addresses that are unknown when certificates are made; the token already proves who is at the other end. So a peer
// needs both the token and a certificate, and one certificate may serve all processes.
//
// # Lost workers
//
// A broken connection says little about its cause; the death of a process is reported over the control connection. So
// when a connection ends without a last message, everything with its worker ends only after a short time, in which Fail
// may report the reason. If a host acknowledges nothing for some seconds (a cable, a host or a firewall has failed),
// everything ends without this wait, and always within ten seconds. The error is a wire.PeerError. A process that was
// stopped while its host still answers is detected by heartbeats, not here. A worker that has left in good order is not
// lost: what is posted stays until Fail or Close.
//
// # Sessions
//
// All processes make their carriers with the same session number, which grows each time. A connection for a later
// session waits for its carriers. A connection for closed carriers is refused, and its dialler treats that as the peer
// leaving in good order.
//
// # Duties of an Endpoint's caller
//
//  1. Give all processes of a run the same token and Run, a new Run for each start, and TLS settings of the same kind.
//  2. Tell every process the address of every other (Endpoint.Address), for example over Control.
//  3. Close the carriers before the Endpoint, and call their Fail when a process is lost.
package tcp

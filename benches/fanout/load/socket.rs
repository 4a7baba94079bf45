//! Sockets for many thousands of connections from one machine.
//!
//! A source address has some 28,000 ports towards one server. Loopback has plenty of source addresses, which are used
//! in turn; towards another machine the system chooses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections from one source address: well below the number of ports that the system gives out.
const PER_SOURCE: usize = 5_000;
/// Receive buffer of an agent that reads slowly or not at all: small, so that unread bytes soon stay with the server.
const SMALL_BUFFER: usize = 64 * 1024;

/// Begins connection number `i` to `server`; it is established when it becomes writable.
pub(crate) fn connect(server: SocketAddr, i: usize, small_buffer: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if small_buffer {
        // Before connecting: the announced window depends on it.
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
    }
    if let IpAddr::V4(address) = server.ip()
        && address.is_loopback()
    {
        socket.bind(&SocketAddr::from((source(i), 0)).into())?;
    }
    // Closed without lingering: thousands of lingering connections would keep their ports from the next run.
    socket.set_linger(Some(Duration::ZERO))?;
    match socket.connect(&server.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
        Err(error) => return Err(error),
    }
    let stream = TcpStream::from_std(socket.into());
    // A greeting must not be held back. Pongs are small and rare.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// `EINPROGRESS` on Linux, for which std has no name yet.
const IN_PROGRESS: i32 = 115;

/// Loopback address of connection number `i`; never the server's.
fn source(i: usize) -> Ipv4Addr {
    let n = u32::try_from(i / PER_SOURCE % 200).expect("below 200");
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 2)) + n)
}

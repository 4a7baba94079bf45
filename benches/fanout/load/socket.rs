//! Sockets for very many connections from one machine.
//!
//! A source address has some 28,000 ports towards one server. On loopback there are plenty of source addresses, so they are used
//! in turn; towards another machine the system's own choice has to do.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections from one source address: well below the ports that the system gives out.
const PER_SOURCE: usize = 5_000;
/// The receive buffer of an agent that reads slowly or not at all, so that the server notices instead of the kernel's buffers.
const SMALL_BUFFER: usize = 64 * 1024;

/// Begins connection number `i` to `server`; it is established when it becomes writable.
pub(crate) fn connect(server: SocketAddr, i: usize, small_buffer: bool) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if small_buffer {
        // Before the connection is made: the window that is announced depends on it.
        socket.set_recv_buffer_size(SMALL_BUFFER)?;
    }
    if let IpAddr::V4(address) = server.ip()
        && address.is_loopback()
    {
        socket.bind(&SocketAddr::from((source(i), 0)).into())?;
    }
    // Gone without a trace when it is closed: thousands of connections that linger would keep their ports from the next run.
    socket.set_linger(Some(Duration::ZERO))?;
    match socket.connect(&server.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
        Err(error) => return Err(error),
    }
    let stream = TcpStream::from_std(socket.into());
    // Pongs are small and rare; what matters is that a greeting is not held back.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// `EINPROGRESS` on Linux, for which std has no name yet.
const IN_PROGRESS: i32 = 115;

/// The loopback address that connection number `i` comes from; never that of the server.
fn source(i: usize) -> Ipv4Addr {
    let n = u32::try_from(i / PER_SOURCE % 200).expect("below 200");
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 0, 2)) + n)
}

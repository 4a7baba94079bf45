//! Opens the ports for agents, probes and scrapers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, lookup_host};

/// Listens on the first address of a host that can be bound, IPv4 before IPv6 as in Go; on all addresses of both families if the
/// host is empty. Up to `backlog` connections wait in the system until they are accepted; the kernel has a limit of its own.
///
/// # Errors
/// When no address can be bound; the text names the last one.
pub async fn bind(host: &str, port: u16, backlog: i32) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = if host.is_empty() {
        // A system without IPv6 still has IPv4.
        vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
    } else {
        let found = lookup_host((host, port)).await;
        let found = found.map_err(|error| in_words(&format!("look up listen address {host:?}"), &error))?;
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host:?} has no address"));
    for address in addresses {
        match listen(address, backlog) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = in_words(&format!("listen on {address}"), &error),
        }
    }
    Err(last)
}

fn in_words(doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing}: {error}"))
}

fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The unspecified address: one socket for both families.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restarted server must not wait for the old one's connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_with_addresses_of_both_families_means_the_first_of_ipv4() {
        let listener = bind("localhost", 0, 1).await.unwrap();
        assert!(listener.local_addr().unwrap().is_ipv4(), "{listener:?}");
        let error = bind("127.0.0.1", listener.local_addr().unwrap().port(), 1).await.unwrap_err();
        assert!(error.to_string().contains("listen on 127.0.0.1:"), "{error}");
        let error = bind("no.such.name.invalid", 1, 1).await.unwrap_err();
        assert!(error.to_string().contains("look up listen address \"no.such.name.invalid\""), "{error}");
    }
}

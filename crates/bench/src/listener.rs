//! Which process listens on a port.

use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The process that listens on this TCP port, where `/proc` tells (Linux, own processes).
pub(crate) fn process_of(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<String> = tables
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|text| listening_inodes(&text, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|process| holds(*process, &inodes))
}

/// The inodes of sockets that listen on `port`, from a table of `/proc/net`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let listens = fields.get(3) == Some(&LISTENING) && fields.get(1)?.ends_with(&port);
        listens.then(|| fields.get(9).map(ToString::to_string))?
    };
    table.lines().filter_map(inode).collect()
}

fn holds(process: u32, inodes: &[String]) -> bool {
    let directory = format!("/proc/{process}/fd");
    let Ok(descriptors) = std::fs::read_dir(Path::new(&directory)) else {
        // Another user's, or gone by now.
        return false;
    };
    descriptors
        .filter_map(Result::ok)
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| inodes.iter().any(|inode| target.as_os_str() == &**inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(process_of(port), Some(std::process::id()));
    }

    #[test]
    fn a_table_is_understood() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode\n   \
                     0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     \
                     0        0 4711 1 0\n   \
                     1: 0100007F:18EB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     \
                     0        0 4712 1 0\n";
        assert_eq!(listening_inodes(table, 6379), ["4711"]);
        assert!(listening_inodes(table, 6380).is_empty());
    }
}

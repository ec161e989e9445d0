//! Rings against what others publish, and against what they promise.

use super::*;

fn address(port: u16) -> Address {
    Address::Tcp("127.0.0.1".into(), port)
}

fn named(names: &[String]) -> Vec<Node> {
    names
        .iter()
        .zip(1..)
        .map(|(name, port)| Node::new(name, address(port)))
        .collect()
}

fn trees(count: usize) -> Vec<Node> {
    named(&(1..=count).map(|n| format!("node{n}")).collect::<Vec<_>>())
}

fn key(index: u32) -> Vec<u8> {
    format!("user:{index}").into_bytes()
}

/// The share of `count` keys that each node has.
fn shares(ring: &Ring, count: u32) -> Vec<f64> {
    let mut counts = vec![0_u32; ring.nodes().len()];
    for index in 0..count {
        counts[ring.index_of(&key(index))] += 1;
    }
    counts
        .into_iter()
        .map(|node| f64::from(node) / f64::from(count))
        .collect()
}

/// The 640 points of Couchbase's sdk-rfc 0026 for its four nodes, with the last byte of the node's
/// address. The list published there, computed again by another program.
const SDK_RFC_0026: &str = include_str!("vectors/sdk-rfc-0026.txt");

/// What libmemcached's tests expect of the eight weighted nodes 10.0.1.1 to 10.0.1.8: key, the
/// key's position, the point that it belongs to, and the last byte of the node's address.
const LIBMEMCACHED: &str = include_str!("vectors/libmemcached.txt");

#[test]
fn ketama_has_the_points_of_couchbase() {
    let names: Vec<String> = (101..=104)
        .map(|last| format!("192.168.1.{last}:11210"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let continuum = ketama::Continuum::new(&names, &[1; 4]);
    let expected: Vec<(u32, u16)> = SDK_RFC_0026
        .lines()
        .map(|line| {
            let (point, last) = line.split_once(' ').unwrap();
            (point.parse().unwrap(), last.parse::<u16>().unwrap() - 101)
        })
        .collect();
    assert_eq!(expected.len(), 4 * 160);
    assert_eq!(continuum.points(), expected);
}

#[test]
fn the_later_of_two_nodes_has_their_common_point() {
    let names = ["example.com:11210", "example137723.com:11210"];
    for (names, later) in [(names, 1), ([names[1], names[0]], 1)] {
        let continuum = ketama::Continuum::new(&names, &[1, 1]);
        assert_eq!(continuum.points().len(), 2 * 160 - 1);
        let common = continuum
            .points()
            .iter()
            .find(|point| point.0 == 1_723_476_360);
        assert_eq!(common, Some(&(1_723_476_360, later)));
    }
}

#[test]
fn ketama_finds_the_nodes_that_libmemcached_finds() {
    let weights = [600, 300, 200, 350, 1000, 800, 950, 100];
    let names: Vec<String> = (1..=8).map(|last| format!("10.0.1.{last}")).collect();
    let nodes = named(&names)
        .into_iter()
        .zip(weights)
        .map(|(node, weight)| node.with_weight(weight))
        .collect();
    let ring = Ring::new(Scheme::Ketama, nodes).unwrap().without_tags();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let continuum = ketama::Continuum::new(&names, &weights);
    let mut keys = 0;
    for line in LIBMEMCACHED.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [key, position, point, last] = fields[..] else {
            panic!("{line}");
        };
        let node = last.parse::<u16>().unwrap() - 1;
        let expected = (position.parse().unwrap(), (point.parse().unwrap(), node));
        assert_eq!(continuum.point_of(key.as_bytes()), expected, "{key}");
        assert_eq!(ring.index_of(key.as_bytes()), usize::from(node), "{key}");
        keys += 1;
    }
    assert_eq!(keys, 99);
    // Its position is behind the last point.
    let wrapped = continuum.point_of(b"VDEAAAAA");
    assert_eq!(wrapped, (0xfffc_d1b5, continuum.points()[0]));
}

#[test]
fn ketama_loses_the_points_that_libmemcached_loses() {
    let nodes = |weight| {
        let names: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        ketama::Continuum::new(&names, &[weight; 25]).points().len()
    };
    assert_eq!((nodes(1), nodes(2)), (25 * 160, 25 * 156));
}

/// From a program in Python, with its `xxhash` and logarithms in floating point.
#[test]
fn rendezvous_is_what_its_definition_says() {
    let initials = |weights: [u32; 4]| {
        let names = ["oak", "ash", "elm", "fir"].map(String::from);
        let nodes = named(&names)
            .into_iter()
            .zip(weights)
            .map(|(node, weight)| node.with_weight(weight))
            .collect();
        let ring = Ring::new(Scheme::Rendezvous, nodes).unwrap();
        (0..64)
            .map(|n| &ring.node_of(format!("key:{n}").as_bytes()).name()[..1])
            .collect::<String>()
    };
    let plain = "eofafafaooeaoaaeofffooaoeaaefeeeaffoaofofaffooeeffafffoafaaoeaof";
    let weighted = "effafafaefeaoaaeofffofafeffefeeefffoaofffaffooeeffaffffafeaoeaff";
    assert_eq!(initials([1; 4]), plain);
    assert_eq!(initials([1, 2, 3, 5]), weighted);
}

#[test]
fn ten_nodes_are_even() {
    let rendezvous = Ring::new(Scheme::Rendezvous, trees(10)).unwrap();
    for share in shares(&rendezvous, 400_000) {
        assert!((share * 10.0 - 1.0).abs() < 0.02, "{share}");
    }
    let ketama = Ring::new(Scheme::Ketama, trees(10)).unwrap();
    for share in shares(&ketama, 100_000) {
        assert!((share * 10.0 - 1.0).abs() < 0.20, "{share}");
    }
}

#[test]
fn an_eleventh_node_moves_its_own_keys_alone() {
    let keys = 100_000;
    for scheme in [Scheme::Rendezvous, Scheme::Ketama] {
        let ten = Ring::new(scheme, trees(10)).unwrap();
        let eleven = Ring::new(scheme, trees(11)).unwrap();
        let mut moved = 0;
        for index in 0..keys {
            if let Some((_, to)) = ten.moves(&eleven, &key(index)) {
                assert_eq!(to.name(), "node11", "{scheme}");
                moved += 1;
            }
        }
        let share = f64::from(moved) / f64::from(keys);
        assert!(
            share > 0.05 && share <= 1.0 / 11.0 + 0.01,
            "{scheme}: {share}"
        );
    }
}

#[test]
fn shares_follow_weights() {
    let weights = [1, 2, 3, 4];
    let nodes: Vec<Node> = trees(4)
        .into_iter()
        .zip(weights)
        .map(|(node, weight)| node.with_weight(weight))
        .collect();
    for (scheme, tolerance) in [(Scheme::Rendezvous, 0.02), (Scheme::Ketama, 0.20)] {
        let ring = Ring::new(scheme, nodes.clone()).unwrap();
        for (share, weight) in shares(&ring, 100_000).into_iter().zip(weights) {
            let expected = f64::from(weight) / 10.0;
            let off = (share / expected - 1.0).abs();
            assert!(off < tolerance, "{scheme}, weight {weight}: {share}");
        }
    }
}

#[test]
fn a_heavier_node_only_takes_keys() {
    let nodes = |weight| {
        let mut nodes: Vec<Node> = trees(5)
            .into_iter()
            .map(|node| node.with_weight(3))
            .collect();
        nodes[2] = nodes[2].clone().with_weight(weight);
        nodes
    };
    let before = Ring::new(Scheme::Rendezvous, nodes(3)).unwrap();
    let after = Ring::new(Scheme::Rendezvous, nodes(4)).unwrap();
    let mut moved = 0;
    for index in 0..20_000 {
        if let Some((_, to)) = before.moves(&after, &key(index)) {
            assert_eq!(to.name(), "node3");
            moved += 1;
        }
    }
    // 4/16 instead of 3/15.
    assert!((900..1100).contains(&moved), "{moved}");
}

#[test]
fn addresses_and_order_move_no_key() {
    for scheme in [Scheme::Rendezvous, Scheme::Ketama] {
        let ring = Ring::new(scheme, trees(7)).unwrap();
        let mut elsewhere: Vec<Node> = trees(7)
            .into_iter()
            .zip(7000..)
            .map(|(node, port)| {
                Node::new(node.name(), address(port)).with_replica(address(port + 99))
            })
            .collect();
        assert!(ring.places_alike(&Ring::new(scheme, elsewhere.clone()).unwrap()));
        elsewhere.reverse();
        let other = Ring::new(scheme, elsewhere).unwrap();
        for index in 0..5_000 {
            assert!(ring.moves(&other, &key(index)).is_none());
        }
        assert!(!ring.places_alike(&Ring::new(scheme, trees(8)).unwrap()));
        assert!(!ring.places_alike(&ring.clone().without_tags()));
    }
}

#[test]
fn keys_with_one_tag_are_on_one_node() {
    let ring = Ring::new(Scheme::Rendezvous, trees(16)).unwrap();
    let whole = ring.clone().without_tags();
    let home = ring.index_of(b"cart7");
    let mut elsewhere = 0;
    for index in 0..100 {
        let key = format!("item:{index}:{{cart7}}");
        assert_eq!(ring.index_of(key.as_bytes()), home);
        elsewhere += usize::from(whole.index_of(key.as_bytes()) != home);
    }
    assert!(elsewhere > 80);
}

const FILE: &str = r#"
scheme = "rendezvous"
tags = false

[[node]]
name = "oak"
address = "10.0.0.1:6379"
weight = 2
replicas = ["10.0.0.2:6379", "[::1]:6379"]

[[node]]
name = "ash"
address = "unix:/run/pando.sock"
"#;

#[test]
fn a_ring_file_says_it_all() {
    let ring = Ring::from_toml(FILE).unwrap();
    assert_eq!(
        (ring.scheme(), ring.has_tags()),
        (Scheme::Rendezvous, false)
    );
    let oak = ring.node("oak").unwrap();
    assert_eq!((oak.weight(), oak.replicas().len()), (2, 2));
    assert_eq!(oak.replicas()[1].to_string(), "[::1]:6379");
    let ash = ring.node("ash").unwrap();
    assert_eq!((ash.weight(), ash.replicas()), (1, &[][..]));
    let short = Ring::from_toml("[[node]]\nname = 'a'\naddress = 'h:1'").unwrap();
    assert_eq!(
        (short.scheme(), short.has_tags()),
        (Scheme::Rendezvous, true)
    );
}

#[test]
fn what_is_wrong_with_a_ring_file_is_told() {
    let node = |fields: &str| format!("[[node]]\nname = 'oak'\naddress = 'h:1'\n{fields}\n");
    let ash = |address: &str| node("") + &format!("[[node]]\nname = 'ash'\naddress = '{address}'");
    let name = |name: &str| format!("[[node]]\nname = {name:?}\naddress = 'h:1'");
    let light = "scheme = 'ketama'\n[[node]]\nname = 'a'\naddress = 'h:2'\nweight = 60000\n";
    for (text, told) in [
        (String::new(), vec!["at least one node"]),
        ("scheme = 'rendezvous".into(), vec!["line 1"]),
        (
            "\nscheme = 'modulo'".into(),
            vec!["line 2", "modulo", "ketama"],
        ),
        ("tags = 1\n".into(), vec!["line 1", "boolean"]),
        ("[[nodes]]".into(), vec!["nodes", "node"]),
        (
            "[[node]]\naddress = 'h:1'".into(),
            vec!["missing field `name`"],
        ),
        (
            "[[node]]\nname = 'oak'".into(),
            vec!["missing field `address`"],
        ),
        (node("wieght = 2"), vec!["line 4", "wieght"]),
        (node("weight = 0"), vec!["`oak`", "weight 0", "1 to 65535"]),
        (node("weight = -1"), vec!["`oak`", "weight -1"]),
        (node("weight = 65536"), vec!["`oak`", "65536"]),
        (node("weight = 1.5"), vec!["line 4", "1.5"]),
        (
            node("replicas = ['h']"),
            vec!["`oak`", "`h`", "port is missing"],
        ),
        (node("replicas = ['h:1']"), vec!["h:1", "twice", "`oak`"]),
        (
            node(&format!("replicas = {:?}", ["h:2"; 17])),
            vec!["17 replicas"],
        ),
        (node("") + &node(""), vec!["two nodes", "`oak`"]),
        (ash("h:1"), vec!["h:1", "twice", "`oak`", "`ash`"]),
        (ash("h"), vec!["`ash`", "port is missing"]),
        (name(""), vec!["1 to 255 bytes"]),
        (name("o k"), vec!["`o k`", "without spaces"]),
        (name(&"x".repeat(256)), vec!["1 to 255 bytes"]),
        (format!("{light}{}", node("")), vec!["`oak`", "no point"]),
        ("x".repeat(2 << 20), vec!["longer than 1048576"]),
    ] {
        let error = Ring::from_toml(&text).unwrap_err().to_string();
        for part in told {
            let text = &text[..text.len().min(200)];
            assert!(error.contains(part), "{text}\n{error}\nexpected {part}");
        }
    }
}

#[test]
fn a_ring_file_that_is_none_is_told_by_path() {
    let absent = Ring::load("/nowhere/ring.toml").unwrap_err().to_string();
    assert!(
        absent.starts_with("ring file /nowhere/ring.toml: cannot be read"),
        "{absent}"
    );
    let folder = Ring::load("/").unwrap_err().to_string();
    assert!(folder.contains("cannot be read"), "{folder}");
}

/// Any text gives a ring or an error.
#[test]
fn damaged_ring_files_do_no_harm() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2_000 {
        let mut bytes = FILE.as_bytes().to_vec();
        for _ in 0..3 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random as usize % bytes.len();
            match random >> 61 {
                0 => bytes.truncate(at + 1),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b'"'),
                _ => bytes[at] = (random >> 40) as u8 & 0x7f,
            }
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        if let Ok(ring) = Ring::from_toml(&String::from_utf8_lossy(&bytes)) {
            assert!(ring.index_of(b"key") < ring.nodes().len());
        }
    }
}

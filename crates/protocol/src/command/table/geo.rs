//! Commands on places.

use crate::command::argument::{Argument, block, double, integer, key, one_of, string, word};
use crate::command::execution::GateNeed;
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on places.
    GeoCommand in Keyspace(Geo) {
        Geoadd,
        Geodist,
        Geohash,
        Geopos,
        Georadius,
        GeoradiusRo,
        Georadiusbymember,
        GeoradiusbymemberRo,
        Geosearch,
        Geosearchstore,
    }
}

const READ: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];

const RADIUS: &[KeySpec] = &[
    READ[0],
    KeySpec::after("STORE", &[], 6, KeyAccess::Overwrite, &[KeyEffect::Update]),
    KeySpec::after(
        "STOREDIST",
        &[],
        6,
        KeyAccess::Overwrite,
        &[KeyEffect::Update],
    ),
];
const RADIUS_BY_MEMBER: &[KeySpec] = &[
    READ[0],
    KeySpec::after("STORE", &[], 5, KeyAccess::Overwrite, &[KeyEffect::Update]),
    KeySpec::after(
        "STOREDIST",
        &[],
        5,
        KeyAccess::Overwrite,
        &[KeyEffect::Update],
    ),
];

const UNIT: Argument = one_of(
    "unit",
    &[
        word("m", "M"),
        word("km", "KM"),
        word("ft", "FT"),
        word("mi", "MI"),
    ],
);
const CENTRE: Argument = one_of(
    "from",
    &[
        string("member").token("FROMMEMBER"),
        block("fromlonlat", &[double("longitude"), double("latitude")]).token("FROMLONLAT"),
    ],
);
const SHAPE: Argument = one_of(
    "by",
    &[
        block("circle", &[double("radius").token("BYRADIUS"), UNIT]),
        block(
            "box",
            &[double("width").token("BYBOX"), double("height"), UNIT],
        ),
    ],
);
const ORDER: Argument = one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional();
const COUNT: Argument = block(
    "count-block",
    &[
        integer("count").token("COUNT"),
        word("any", "ANY").optional(),
    ],
)
.optional();

const WITH_COORD: Argument = word("withcoord", "WITHCOORD").optional();
const WITH_DIST: Argument = word("withdist", "WITHDIST").optional();
const WITH_HASH: Argument = word("withhash", "WITHHASH").optional();
const STORE: Argument = key("storekey", 1).token("STORE").optional();
const STOREDIST: Argument = key("storedistkey", 2).token("STOREDIST").optional();

/// In the order of [`GeoCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(GeoCommand::Geoadd.id(), "geoadd", -5)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Geo])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Geo, "3.2.0")
        .summary("Adds members with their places to a sorted set.")
        .complexity("O(log M) for each member in a set of M members.")
        .history(&[changed("6.2.0", "Took `CH`, `NX` and `XX`.")])
        .arguments(&[
            key("key", 0),
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")])
                .since("6.2.0")
                .optional(),
            word("change", "CH").since("6.2.0").optional(),
            block(
                "data",
                &[double("longitude"), double("latitude"), string("member")],
            )
            .multiple(),
        ]),
    CommandSpec::new(GeoCommand::Geodist.id(), "geodist", -4)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Geo])
        .keys(READ)
        .group(Group::Geo, "3.2.0")
        .summary("Returns the distance between two members.")
        .complexity("O(log M) in a set of M members.")
        .arguments(&[
            key("key", 0),
            string("member1"),
            string("member2"),
            UNIT.optional(),
        ]),
    CommandSpec::new(GeoCommand::Geohash.id(), "geohash", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Geo])
        .keys(READ)
        .group(Group::Geo, "3.2.0")
        .summary("Returns the places of members as geohashes of eleven letters.")
        .complexity("O(log M) for each member in a set of M members.")
        .arguments(&[key("key", 0), string("member").multiple().optional()]),
    CommandSpec::new(GeoCommand::Geopos.id(), "geopos", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Geo])
        .keys(READ)
        .group(Group::Geo, "3.2.0")
        .summary("Returns the places of members as longitude and latitude.")
        .complexity("O(log M) for each member in a set of M members.")
        .arguments(&[key("key", 0), string("member").multiple().optional()]),
    CommandSpec::new(GeoCommand::Georadius.id(), "georadius", -6)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::MovableKeys])
        .categories(&[Category::Geo])
        .gates(GateNeed::All)
        .keys(RADIUS)
        .group(Group::Geo, "3.2.0")
        .summary("Returns or stores the members in a circle around a place.")
        .complexity("O(log M + N) for N members around the circle in a set of M.")
        .history(&[changed("6.2.0", "Took `ANY`.")])
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
        )
        .arguments(&[
            key("key", 0),
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
            COUNT,
            ORDER,
            STORE,
            STOREDIST,
        ]),
    CommandSpec::new(GeoCommand::GeoradiusRo.id(), "georadius_ro", -6)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Geo])
        .keys(READ)
        .group(Group::Geo, "3.2.10")
        .summary("Returns the members in a circle around a place.")
        .complexity("O(log M + N) for N members around the circle in a set of M.")
        .history(&[changed("6.2.0", "Took `ANY`.")])
        .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
        .arguments(&[
            key("key", 0),
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
            COUNT,
            ORDER,
        ]),
    CommandSpec::new(GeoCommand::Georadiusbymember.id(), "georadiusbymember", -5)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::MovableKeys])
        .categories(&[Category::Geo])
        .gates(GateNeed::All)
        .keys(RADIUS_BY_MEMBER)
        .group(Group::Geo, "3.2.0")
        .summary("Returns or stores the members in a circle around a member.")
        .complexity("O(log M + N) for N members around the circle in a set of M.")
        .history(&[changed("6.2.0", "Took `ANY`.")])
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
        )
        .arguments(&[
            key("key", 0),
            string("member"),
            double("radius"),
            UNIT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
            COUNT,
            ORDER,
            STORE,
            STOREDIST,
        ]),
    CommandSpec::new(
        GeoCommand::GeoradiusbymemberRo.id(),
        "georadiusbymember_ro",
        -5,
    )
    .flags(&[Flag::Readonly])
    .categories(&[Category::Geo])
    .keys(READ)
    .group(Group::Geo, "3.2.10")
    .summary("Returns the members in a circle around a member.")
    .complexity("O(log M + N) for N members around the circle in a set of M.")
    .history(&[changed("6.2.0", "Took `ANY`.")])
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
    )
    .arguments(&[
        key("key", 0),
        string("member"),
        double("radius"),
        UNIT,
        WITH_COORD,
        WITH_DIST,
        WITH_HASH,
        COUNT,
        ORDER,
    ]),
    CommandSpec::new(GeoCommand::Geosearch.id(), "geosearch", -7)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Geo])
        .keys(READ)
        .group(Group::Geo, "6.2.0")
        .summary("Returns the members in a circle or rectangle.")
        .complexity("O(log M + N) for N members around the shape in a set of M.")
        .arguments(&[
            key("key", 0),
            CENTRE,
            SHAPE,
            ORDER,
            COUNT,
            WITH_COORD,
            WITH_DIST,
            WITH_HASH,
        ]),
    CommandSpec::new(GeoCommand::Geosearchstore.id(), "geosearchstore", -8)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Geo])
        .gates(GateNeed::All)
        .keys(&[
            KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update]),
            KeySpec::one(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
        ])
        .group(Group::Geo, "6.2.0")
        .summary("Stores the members in a circle or rectangle.")
        .complexity("O(log M + N log N) for N members around the shape in a set of M.")
        .arguments(&[
            key("destination", 0),
            key("source", 1),
            CENTRE,
            SHAPE,
            ORDER,
            COUNT,
            word("storedist", "STOREDIST").optional(),
        ]),
];

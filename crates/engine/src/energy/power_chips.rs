//! The chips of the kernel's hardware monitoring whose sensors tell the power of a board or a processor, and which of their rails
//! are counted: the one that feeds the whole board, where there is one ([`WHOLE`]), else the sum of all that are not within another ([`WITHIN`]),
//! as `jtop` and NVIDIA's documentation of each Jetson's rails have it.

use std::ops::RangeInclusive;

/// What a chip measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Processor,
    /// The board, with its processor and, on a Jetson, its GPU.
    Board,
}

/// A chip whose sensors are counted.
pub(super) struct Chip {
    pub name: &'static str,
    pub part: Part,
    /// If not empty, the sensors whose labels begin so; others are within these.
    pub labels: &'static str,
}

const fn board(name: &'static str) -> Chip {
    Chip { name, part: Part::Board, labels: "" }
}

/// The chips that measure the supply of a board or a processor. All others are left out: batteries and power supplies measure what
/// charges too, network cards, drives and GPUs have sensors of their own, and regulators' controllers depend on the board.
pub(super) const CHIPS: &[Chip] = &[
    // Monitors of currents and voltages with a shunt, on boards only: Texas Instruments' INA series.
    board("ina3221"), // three rails; all Jetsons
    board("ina219"),
    board("ina220"),
    board("ina226"),
    board("ina228"),
    board("ina230"),
    board("ina231"), // Odroid-XU3
    board("ina237"),
    board("ina238"), // the input of Jetson Thor
    board("ina260"),
    // The processor's own estimate of its power, before RAPL.
    Chip { name: "fam15h_power", part: Part::Processor, labels: "" },
    // AMD's RAPL; counters of cores are within those of sockets.
    Chip { name: "amd_energy", part: Part::Processor, labels: "Esocket" },
    // AMD's voltage regulators: the cores, and the rest of the package.
    Chip { name: "zenpower", part: Part::Processor, labels: "" },
];

/// Rails that feed all others of a Jetson: of the TX2, Xavier NX, Orin NX and Orin Nano; of the TX1 and Nano; of Thor.
pub(super) const WHOLE: &[&str] = &["VDD_IN", "POM_5V_IN", "VIN"];

/// Rails that another one feeds, and that one: memory on the AGX Orin. (`VIN_SYS_5V0` itself is not the board's input there: it
/// feeds memory and interfaces, next to the rails of GPU and CPU.)
pub(super) const WITHIN: &[(&str, &str)] = &[("VDDQ_VDD2_1V8AO", "VIN_SYS_5V0")];

/// The label of channels without a rail.
pub(super) const NOT_CONNECTED: &str = "NC";

/// Channels that have a voltage and a current. Beyond these, the voltages of an INA3221 are those of its shunts.
pub(super) const CHANNELS: RangeInclusive<u32> = 1..=3;

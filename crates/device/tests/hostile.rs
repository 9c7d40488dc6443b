//! Seeded runs of what the fuzz targets `nvme_command` and `prp_sgl` run for longer.

#[path = "rig/hostile.rs"]
mod hostile;
mod rig;

#[test]
fn arbitrary_commands_and_pointers() {
    let mut seed = 7u64;
    for round in 0..200 {
        let input: Vec<u8> = (0..4096)
            .map(|i| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let byte = (seed >> 56) as u8;
                // Small values in the fields that choose: opcode, namespace, identifiers.
                match i % 64 {
                    0 => byte & 0x1f,
                    4 => 1,
                    5..=7 | 41..=43 => 0,
                    _ => byte,
                }
            })
            .collect();
        hostile::run(&input, round % 2 == 1);
    }
}

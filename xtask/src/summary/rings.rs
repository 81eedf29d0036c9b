//! All four rings of every case.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::record::Run;

/// One row per case and ring in use: high-water, capacity, task window, dependency pool.
pub(super) fn table(run: &Run) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "case",
        "ring",
        "heap high-water",
        "heap",
        "tier",
        "tasks",
        "window",
        "deps",
        "pool",
    ]);
    for record in run.terminal() {
        let Some(usage) = record.rings.usage else { continue };
        for (ring, usage) in usage.iter().enumerate() {
            let tier = record
                .rings
                .asked
                .as_ref()
                .map_or("-", |asked| asked.heap[ring].tier.as_str());
            let number = |value: u64| Cell::new(value).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(&record.case),
                Cell::new(ring),
                number(usage.heap_high_water_bytes),
                number(usage.heap_capacity_bytes),
                Cell::new(tier),
                number(usage.tasks_high_water),
                number(usage.task_window),
                number(usage.dep_pool_high_water),
                number(usage.dep_pool),
            ]);
        }
    }
    table
        .lines()
        .map(|line| line.trim().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}
